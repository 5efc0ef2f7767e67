/* What tells drivers 535.43 to 535.86 apart from others: this call is there, nvmlDeviceGetRunningProcessDetailList is not. */
unsigned nvmlDeviceGetConfComputeMemSizeInfo(void *device, void *info);

__attribute__((visibility("default"))) unsigned nvmlDeviceGetConfComputeMemSizeInfo(void *device, void *info)
{
    return device && info ? 3 : 2;
}
