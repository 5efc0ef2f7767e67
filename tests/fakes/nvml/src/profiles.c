/* The GPUs that the fake knows, written in the script's own language. Idle: load is the script's business. */
#include <string.h>

#include "fake.h"

const char PROFILE_COMMON[] =
    "used_mib auto\n"
    "busy 0\nmembusy 0\nenc 0\ndec 0\njpg 0\nofa 0\n"
    "gpm 0\nsm 0\noccupancy 0\ninteger 0\ntensor 0\ndram 0\nfp64 0\nfp32 0\nfp16 0\n"
    "pcie_tx_mibs 0\npcie_rx_mibs 0\n"
    "throttled_power_cap 0\nthrottled_sync_boost 0\nthrottled_board_limit 0\nthrottled_low_utilization 0\n"
    "throttled_reliability 0\nthrottled_sw_thermal 0\nthrottled_hw_thermal 0\nthrottled_power_brake 0\n"
    "temp_c 30\npstate 0\npersistence 1\ncompute_mode 0\nvirtualization 0\naddressing 0\nrecovery 0\ndisplay 0\n";

static const struct { const char *name, *text; } PROFILES[] = {
    {"h100-sxm",
     "name NVIDIA H100 80GB HBM3\n"
     "total_mib 81559\nreserved_mib 551\nbar1_total_mib 131072\nbar1_used_mib 1\n"
     "gpm 1\narch 9\ncc 9.0\ncores 16896\nbus_width 5120\n"
     "nvlink_rx_mibs 0\nnvlink_tx_mibs 0\nnvlink_links 18\n"
     "power_w 70\npower_limit_w 700\npower_default_w 700\npower_min_w 200\npower_max_w 700\nmem_temp_c 40\n"
     "sm_clock_mhz 1980\nmem_clock_mhz 2619\nvideo_clock_mhz 1545\n"
     "max_sm_clock_mhz 1980\nmax_mem_clock_mhz 2619\nmax_video_clock_mhz 1545\n"
     "pcie_gen 5\npcie_width 16\npcie_max_gen 5\npcie_max_width 16\n"
     "ecc 1\necc_corrected 0\necc_uncorrected 0\n"
     "remap_correctable 0\nremap_uncorrectable 0\nremap_pending 0\nremap_failure 0\nmig_mode 0\n"},
    {"a100-sxm",
     "name NVIDIA A100-SXM4-80GB\n"
     "total_mib 81920\nreserved_mib 632\nbar1_total_mib 131072\nbar1_used_mib 1\n"
     "arch 7\ncc 8.0\ncores 6912\nbus_width 5120\n"
     "nvlink_rx_mibs 0\nnvlink_tx_mibs 0\nnvlink_links 12\n"
     "power_w 60\npower_limit_w 400\npower_default_w 400\npower_min_w 100\npower_max_w 400\nmem_temp_c 38\n"
     "slowdown_c 89\nshutdown_c 92\n"
     "sm_clock_mhz 1410\nmem_clock_mhz 1593\nvideo_clock_mhz 1275\n"
     "max_sm_clock_mhz 1410\nmax_mem_clock_mhz 1593\nmax_video_clock_mhz 1290\n"
     "pcie_gen 4\npcie_width 16\npcie_max_gen 4\npcie_max_width 16\n"
     "ecc 1\necc_corrected 0\necc_uncorrected 0\n"
     "remap_correctable 0\nremap_uncorrectable 0\nremap_pending 0\nremap_failure 0\nmig_mode 0\n"},
    {"l4",
     "name NVIDIA L4\n"
     "total_mib 23034\nreserved_mib 459\nbar1_total_mib 32768\nbar1_used_mib 1\n"
     "arch 8\ncc 8.9\ncores 7424\nbus_width 192\n"
     "power_w 16\npower_limit_w 72\npower_default_w 72\npower_min_w 40\npower_max_w 72\n"
     "slowdown_c 90\nshutdown_c 95\n"
     "sm_clock_mhz 2040\nmem_clock_mhz 6251\nvideo_clock_mhz 1770\n"
     "max_sm_clock_mhz 2040\nmax_mem_clock_mhz 6251\nmax_video_clock_mhz 1770\n"
     "pcie_gen 4\npcie_width 16\npcie_max_gen 4\npcie_max_width 16\n"
     "ecc 1\necc_corrected 0\necc_uncorrected 0\n"
     "remap_correctable 0\nremap_uncorrectable 0\nremap_pending 0\nremap_failure 0\n"},
    {"rtx4090",
     "name NVIDIA GeForce RTX 4090\n"
     "total_mib 24564\nreserved_mib 352\nbar1_total_mib 32768\nbar1_used_mib 9\n"
     "arch 8\ncc 8.9\ncores 16384\nbus_width 384\n"
     "power_w 22\npower_limit_w 450\npower_default_w 450\npower_min_w 10\npower_max_w 600\nfan 30\n"
     "slowdown_c 97\nshutdown_c 100\n"
     "sm_clock_mhz 2520\nmem_clock_mhz 10501\nvideo_clock_mhz 1950\n"
     "max_sm_clock_mhz 3105\nmax_mem_clock_mhz 10501\nmax_video_clock_mhz 2415\n"
     "pcie_gen 4\npcie_width 16\npcie_max_gen 4\npcie_max_width 16\n"
     "ecc 0\n"},
    /* Unified memory: no framebuffer, no memory clock, no bus width, no limits; the link figures mean nothing. */
    {"gb10",
     "name NVIDIA GB10\n"
     "used_mib unsupported\n"
     "arch 10\ncc 12.1\ncores 6144\n"
     "power_w 5\n"
     "sm_clock_mhz 2405\nmax_sm_clock_mhz 3003\n"
     "pcie_gen 1\npcie_width 1\npcie_max_gen 1\npcie_max_width 1\naddressing 2\n"},
};

static const char MIG_PROFILE[] = "profile h100-sxm\nmig 2 3g.40gb\n";

const char *profile_text(const char *name)
{
    if (strcmp(name, "h100-mig") == 0) return MIG_PROFILE;
    for (size_t i = 0; i < sizeof PROFILES / sizeof *PROFILES; i++)
        if (strcmp(name, PROFILES[i].name) == 0) return PROFILES[i].text;
    return NULL;
}
