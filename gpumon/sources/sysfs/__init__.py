"""GPUs by the files of the kernel alone, without a library of their vendor: sysfs, and fdinfo of processes."""
