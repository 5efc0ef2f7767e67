"""Files of real cards, as their owners sent them to LACT (github.com/ilya-zlobintsev/LACT, 238e315, lact-daemon).

Those of the Instinct are put together by amdgpu's source (Linux 6.12): its card has no display and no fan.
"""

from __future__ import annotations

from typing import Final

RX_7900_XTX: Final = {
    "device/uevent": "DRIVER=amdgpu\nPCI_CLASS=30000\nPCI_ID=1002:744C\nPCI_SUBSYS_ID=1DA2:E471\n"
    "PCI_SLOT_NAME=0000:03:00.0\nMODALIAS=pci:v00001002d0000744C\n",
    "device/vendor": "0x1002\n",
    "device/revision": "0xc8\n",
    "device/current_link_speed": "16.0 GT/s PCIe\n",
    "device/current_link_width": "16\n",
    "device/max_link_speed": "16.0 GT/s PCIe\n",
    "device/max_link_width": "16\n",
    "device/power/runtime_status": "active\n",
    "device/gpu_busy_percent": "3\n",
    "device/mem_busy_percent": "1\n",
    "device/mem_info_vram_total": "25753026560\n",
    "device/mem_info_vram_used": "1272893440\n",
    "device/pp_dpm_mclk": "0: 96Mhz \n1: 456Mhz \n2: 772Mhz \n3: 1249Mhz *\n",
    "device/pp_dpm_sclk": "0: 500Mhz\n1: 31Mhz *\n2: 2219Mhz\n",
    "device/hwmon/hwmon8/name": "amdgpu\n",
    "device/hwmon/hwmon8/fan1_input": "0\n",
    "device/hwmon/hwmon8/freq1_input": "31000000\n",
    "device/hwmon/hwmon8/freq1_label": "sclk\n",
    "device/hwmon/hwmon8/freq2_input": "1249000000\n",
    "device/hwmon/hwmon8/freq2_label": "mclk\n",
    "device/hwmon/hwmon8/power1_average": "68000000\n",
    "device/hwmon/hwmon8/power1_cap": "290000000\n",
    "device/hwmon/hwmon8/power1_cap_default": "290000000\n",
    "device/hwmon/hwmon8/power1_label": "PPT\n",
    "device/hwmon/hwmon8/pwm1": "51\n",
    "device/hwmon/hwmon8/temp1_crit_hyst": "-273150\n",
    "device/hwmon/hwmon8/temp1_input": "53000\n",
    "device/hwmon/hwmon8/temp1_label": "edge\n",
    "device/hwmon/hwmon8/temp2_input": "61000\n",
    "device/hwmon/hwmon8/temp2_label": "junction\n",
    "device/hwmon/hwmon8/temp3_input": "68000\n",
    "device/hwmon/hwmon8/temp3_label": "mem\n",
}
"""Linux 6.x, idle; the size of its memory, its busy memory and its fan are not in that dump."""

MI300X: Final = {
    "device/uevent": "DRIVER=amdgpu\nPCI_CLASS=120000\nPCI_ID=1002:74A1\nPCI_SUBSYS_ID=1002:74A1\n"
    "PCI_SLOT_NAME=0000:05:00.0\nMODALIAS=pci:v00001002d000074A1\n",
    "device/vendor": "0x1002\n",
    "device/revision": "0x00\n",
    "device/unique_id": "1a2b3c4d5e6f7788\n",
    "device/current_link_speed": "32.0 GT/s PCIe\n",
    "device/current_link_width": "16\n",
    "device/max_link_speed": "32.0 GT/s PCIe\n",
    "device/max_link_width": "16\n",
    "device/gpu_busy_percent": "97\n",
    "device/mem_busy_percent": "42\n",
    "device/mem_info_vram_total": "206141652992\n",
    "device/mem_info_vram_used": "157286400000\n",
    "device/pp_dpm_sclk": "S: 132Mhz *\n0: 500Mhz \n1: 2100Mhz \n",
    "device/pp_dpm_mclk": "0: 900Mhz *\n1: 1100Mhz \n2: 1200Mhz \n3: 1300Mhz \n",
    "device/ras/umc_err_count": "ue: 0\nce: 3\n",
    "device/ras/gfx_err_count": "ue: 1\nce: 2\nde: 0\n",
    "device/ras/features": "feature mask: 0x1ff\n",
    "device/hwmon/hwmon2/name": "amdgpu\n",
    "device/hwmon/hwmon2/power1_input": "612000000\n",
    "device/hwmon/hwmon2/power1_cap": "750000000\n",
    "device/hwmon/hwmon2/power1_cap_default": "750000000\n",
    "device/hwmon/hwmon2/power1_label": "PPT\n",
    "device/hwmon/hwmon2/freq1_input": "2090000000\n",
    "device/hwmon/hwmon2/freq1_label": "sclk\n",
    "device/hwmon/hwmon2/freq2_input": "1300000000\n",
    "device/hwmon/hwmon2/freq2_label": "mclk\n",
    "device/hwmon/hwmon2/temp2_input": "71000\n",
    "device/hwmon/hwmon2/temp2_label": "junction\n",
    "device/hwmon/hwmon2/temp3_input": "58000\n",
    "device/hwmon/hwmon2/temp3_label": "mem\n",
}
MI300X_NODE: Final = (
    "cpu_cores_count 0\nsimd_count 1216\nsimd_per_cu 4\ngfx_target_version 90402\nvendor_id 4098\ndevice_id 29857\n"
    "location_id 1280\ndomain 0\ndrm_render_minor 128\nhive_id 12345678901234567890\nunique_id 1885667171979197320\n"
)
RX_580: Final = {
    "device/uevent": "DRIVER=amdgpu\nPCI_CLASS=30000\nPCI_ID=1002:67DF\nPCI_SLOT_NAME=0000:09:00.0\n",
    "device/revision": "0xe7\n",
    "device/product_name": "\n",
    "device/unique_id": "\n",
    "device/gpu_busy_percent": "11\n",
    "device/mem_info_vram_total": "4294967296\n",
    "device/mem_info_vram_used": "536870912\n",
    "device/hwmon/hwmon4/name": "amdgpu\n",
    "device/hwmon/hwmon4/power1_average": "41045000\n",
    "device/hwmon/hwmon4/power1_cap": "155000000\n",
    "device/hwmon/hwmon4/temp1_input": "44000\n",
    "device/hwmon/hwmon4/temp1_label": "edge\n",
}
RX_9070_XT: Final = {
    "device/uevent": "DRIVER=amdgpu\nPCI_CLASS=30000\nPCI_ID=1002:7550\nPCI_SLOT_NAME=0000:0f:00.0\n",
    "device/revision": "0xc0\n",
    "device/gpu_busy_percent": "3\n",
    "device/pp_dpm_sclk": "S: 19Mhz *\n0: 615Mhz\n1: 800Mhz\n2: 888Mhz\n3: 1000Mhz\n",
    "device/hwmon/hwmon5/name": "amdgpu\n",
    "device/hwmon/hwmon5/freq1_input": "167000000\n",
    "device/hwmon/hwmon5/freq1_label": "sclk\n",
}
B580: Final = {
    "device/uevent": "DRIVER=xe\nPCI_CLASS=30000\nPCI_ID=8086:E20B\nPCI_SUBSYS_ID=8086:1100\n"
    "PCI_SLOT_NAME=0000:09:00.0\n",
    "device/vendor": "0x8086\n",
    "device/revision": "0x00\n",
    "device/current_link_speed": "2.5 GT/s PCIe\n",
    "device/current_link_width": "1\n",
    "device/power/runtime_status": "active\n",
    "device/tile0/gt0/freq0/act_freq": "2400\n",
    "device/tile0/gt0/freq0/rp0_freq": "2850\n",
    "device/tile0/gt0/gtidle/idle_residency_ms": "308607\n",
    "device/tile0/gt0/gtidle/name": "gt0-rc\n",
    "device/tile0/gt1/freq0/act_freq": "0\n",
    "device/tile0/gt1/gtidle/idle_residency_ms": "312192\n",
    "device/tile0/gt1/gtidle/name": "gt1-mc\n",
    "device/hwmon/hwmon2/name": "xe\n",
    "device/hwmon/hwmon2/energy1_input": "11031745544\n",
    "device/hwmon/hwmon2/energy1_label": "card\n",
    "device/hwmon/hwmon2/energy2_input": "19014248107\n",
    "device/hwmon/hwmon2/energy2_label": "pkg\n",
    "device/hwmon/hwmon2/power1_cap": "190000000\n",
    "device/hwmon/hwmon2/power1_crit": "380000000\n",
    "device/hwmon/hwmon2/power1_label": "card\n",
    "device/hwmon/hwmon2/temp2_input": "54000\n",
    "device/hwmon/hwmon2/temp2_label": "pkg\n",
    "device/hwmon/hwmon2/temp3_input": "56000\n",
    "device/hwmon/hwmon2/temp3_label": "vram\n",
}
"""Linux 6.17; the clock is one under load."""
A380_I915: Final = {
    "device/uevent": "DRIVER=i915\nPCI_CLASS=30000\nPCI_ID=8086:56A5\nPCI_SLOT_NAME=0000:0b:00.0\n",
    "device/vendor": "0x8086\n",
    "gt/gt0/id": "0\n",
    "gt/gt0/rc6_residency_ms": "6534\n",
    "gt/gt0/rps_RP0_freq_mhz": "2450\n",
    "gt/gt0/rps_act_freq_mhz": "600\n",
    "gt_act_freq_mhz": "600\n",
    "device/hwmon/hwmon1/name": "i915\n",
    "device/hwmon/hwmon1/energy1_input": "25637161804\n",
    "device/hwmon/hwmon1/power1_max": "55000000\n",
    "device/hwmon/hwmon1/power1_rated_max": "0\n",
    "device/hwmon/hwmon1/temp1_input": "55000\n",
}
INTEGRATED: Final = {
    "device/uevent": "DRIVER=i915\nPCI_CLASS=30000\nPCI_ID=8086:9A49\nPCI_SLOT_NAME=0000:00:02.0\n",
    "device/vendor": "0x8086\n",
    "gt/gt0/rc6_residency_ms": "123456\n",
}
"""Tiger Lake."""
