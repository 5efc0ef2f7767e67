"""The topology as text: the matrix of connections, a row per GPU, and what is not as it could be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from gpumon.outputs.tables import ColumnSpec, PrintedColumn, columns_of, join_stripped, table
from gpumon.readings.format import counted, short, spans
from gpumon.readings.missing import Missing, Reading, number
from gpumon.readings.text import clean
from gpumon.readings.topology import NVLINK_WORD, XGMI_LINK, LinkPath, Topology, TopologyGpu, is_below, nvlink_groups

_PATH_MEANINGS: Final = {
    LinkPath.BOARD: "on one board",
    LinkPath.PIX: "across one PCIe bridge at most",
    LinkPath.PXB: "across several PCIe bridges, without the CPU",
    LinkPath.PHB: "across a PCIe host bridge: the CPU",
    LinkPath.NODE: "across host bridges of one NUMA node",
    LinkPath.SYS: "across the connection between NUMA nodes",
    LinkPath.XGMI: "across XGMI links between the two",
    LinkPath.XGMI_VIA: "across XGMI links, by way of other GPUs",
    LinkPath.UNKNOWN: "the driver does not tell",
}
"""Path between two GPUs -> what it means."""
_ERROR_COMMANDS: Final = {NVLINK_WORD: "nvidia-smi nvlink -s", XGMI_LINK: "amd-smi xgmi"}
"""Name of a link -> the command that shows its errors."""
_NVIDIA_COLUMNS: Final = ("persistence", "MIG", "ECC")
"""Columns of settings that other drivers do not have."""


def report(topology: Topology, width: int) -> str:
    """The topology as text in `width` cells."""
    return join_stripped(_lines(topology, width))


def _lines(topology: Topology, width: int) -> Iterator[str]:
    """Versions, the table of GPUs, the matrix of their paths, and remarks."""
    versions = f"driver {topology.driver or '-'}"
    if topology.link == NVLINK_WORD:
        versions += f"  CUDA {topology.cuda or '-'}"
    yield versions
    if not topology.boards:
        yield "the driver lists no GPU"
        return
    yield ""
    yield from table(_board_columns(topology), width)
    if len(topology.boards) > 1:
        yield ""
        yield from table(_matrix_columns(topology), width)
        yield ""
        yield from _legend(topology)
    remarks = list(_remarks(topology))
    if remarks:
        yield ""
        yield from remarks


def _board_columns(topology: Topology) -> list[PrintedColumn]:
    """The columns of the table of GPUs; for other drivers than NVIDIA's without its settings."""
    columns = list(columns_of(topology.boards, _BOARD_COLUMNS))
    if topology.link == NVLINK_WORD:
        return columns
    others = []
    for column in columns:
        if column.title == f"{NVLINK_WORD}s" and topology.link:
            others.append(column._replace(title=f"{topology.link}s"))
        elif column.title not in (f"{NVLINK_WORD}s", *_NVIDIA_COLUMNS):
            others.append(column)
    return others


def _matrix_columns(topology: Topology) -> list[PrintedColumn]:
    """The matrix of connections: a row and a column per GPU."""
    words: dict[tuple[int, int], str] = {}
    for pair in topology.pairs:
        words[pair.first, pair.second] = pair.word
        words[pair.second, pair.first] = pair.word
    indices = [board.index for board in topology.boards]
    columns = [PrintedColumn("", [f"gpu {index}" for index in indices])]
    for column in indices:
        texts = ["X" if row == column else words.get((row, column), "-") for row in indices]
        columns.append(PrintedColumn(str(column), texts))
    return columns


def _legend(topology: Topology) -> Iterator[str]:
    """The words that stand in the matrix."""
    counts = {pair.nvlinks for pair in topology.pairs if pair.nvlinks}
    for count in sorted(counts, reverse=True):
        yield f"NV{count}   {counted(count, 'NVLink')}, directly or through NVSwitches"
    paths = {pair.path for pair in topology.pairs if not pair.nvlinks}
    for path, meaning in _PATH_MEANINGS.items():
        if path in paths:
            yield f"{path.value:<6}{meaning}"


def _remarks(topology: Topology) -> Iterator[str]:
    """Remarks on what is not as it could be, and on what a placement should know."""
    for board in topology.boards:
        if board.fault:
            yield f"! gpu {board.index}: {clean(board.fault)}"
            continue
        yield from _link_remarks(board, topology.link)
    unloading = [board.index for board in topology.boards if board.persistence == 0.0]
    if unloading:
        text = "without a process on it the driver unloads, and the next one starts slowly"
        yield f"persistence mode is off on gpu {spans(unloading)}: {text} (nvidia-smi -pm 1, as root)"
    yield from _unlinked_remark(topology)
    yield from _unknown_remark(topology)
    yield from _placement_remarks(topology)


def _unlinked_remark(topology: Topology) -> Iterator[str]:
    """The GPUs none of whose links is active."""
    unlinked = [board.index for board in topology.boards if board.nvlinks_active == 0.0 and board.nvlinks != 0.0]
    if unlinked:
        text = f"so it is on a board without a bridge; else see dmesg, and {_ERROR_COMMANDS[topology.link]}"
        yield f"none of the {topology.link}s of gpu {spans(unlinked)} is active: {text}"


def _unknown_remark(topology: Topology) -> Iterator[str]:
    """The GPUs of which it is not known whether links connect them."""
    unknown = _without_known_links(topology)
    if unknown:
        text = "the kernel lists no links of it (/sys/class/kfd/kfd/topology): amd-smi topology"
        yield f"{topology.link}s of gpu {spans(unknown)} are not known: {text}"


def _without_known_links(topology: Topology) -> list[int]:
    """The GPUs of which it is not known how many links they have."""
    return [board.index for board in topology.boards if isinstance(board.nvlinks, Missing)]


def _placement_remarks(topology: Topology) -> Iterator[str]:
    """Groups of GPUs that are near each other, where that is not the same for all."""
    groups = nvlink_groups(topology)
    has_links = any(pair.is_linked for pair in topology.pairs)
    if has_links and len(groups) > 1:
        texts = " | ".join(spans(group) for group in groups)
        yield f"groups that {topology.link}s connect: {texts}; keep the GPUs of one engine within a group"
    elif (
        not has_links
        and not _without_known_links(topology)
        and any(pair.path is LinkPath.SYS for pair in topology.pairs)
    ):
        advice = "keep the GPUs of one engine on one node"
        yield f"no {topology.link or 'link'}s, and some GPUs are on different NUMA nodes: {advice}"


def _link_remarks(board: TopologyGpu, link: str) -> Iterator[str]:
    """Lanes and links of a GPU that are down, and memory errors."""
    name = f"! gpu {board.index}:"
    if is_below(board.pcie_width, board.pcie_width_max):
        lanes = f"x{_whole_text(board.pcie_width)} of x{_whole_text(board.pcie_width_max)} lanes"
        yield f"{name} PCIe {lanes}: a riser, a slot or a dirty contact, if it stays so under load"
    if is_below(board.nvlinks_active, board.nvlinks) and board.nvlinks_active != 0.0:
        links = f"{_whole_text(board.nvlinks_active)} of {counted(int(number(board.nvlinks) or 0.0), link)}"
        yield f"{name} {links} active: see dmesg, and {_ERROR_COMMANDS[link]}"
    if not isinstance(board.ecc_uncorrected, Missing) and board.ecc_uncorrected > 0.0:
        yield f"{name} {_whole_text(board.ecc_uncorrected)} uncorrected ECC errors since the driver was loaded"


def _whole_text(value: Reading) -> str:
    """A number without decimals; of a missing one the reason."""
    if isinstance(value, Missing):
        return short(value)
    return f"{value:.0f}"


def _part_of_most(now: Reading, most: Reading) -> str:
    """A value of now and the highest one: `4 of 5`."""
    if isinstance(now, Missing) and isinstance(most, Missing):
        return short(now)
    return f"{_whole_text(now)} of {_whole_text(most)}"


def _switch_text(value: Reading) -> str:
    """A setting as `on` or `off`; of a missing one the reason."""
    if isinstance(value, Missing):
        return short(value)
    if value:
        return "on"
    return "off"


def _links_text(board: TopologyGpu) -> str:
    """Active links of a GPU and all of them."""
    if isinstance(board.nvlinks, Missing):
        return "not known"
    if not board.nvlinks:
        return "none"
    return _part_of_most(board.nvlinks_active, board.nvlinks)


def _mig_text(board: TopologyGpu) -> str:
    """`off`, or the profiles of the slices: `2x 3g.40gb`."""
    if not board.slices:
        return _switch_text(board.mig)
    profiles = Counter(clean(name.rpartition("MIG ")[2], 40) for name in board.slices)
    return ", ".join(f"{count}x {profile}" for profile, count in profiles.items())


_BOARD_COLUMNS: Final = (
    ColumnSpec[TopologyGpu]("gpu", lambda board: f"gpu {board.index}"),
    ColumnSpec[TopologyGpu]("name", lambda board: clean(board.name, 40) or "-", keep=5),
    ColumnSpec[TopologyGpu]("bus id", lambda board: clean(board.bus_id, 20) or "-", keep=3),
    ColumnSpec[TopologyGpu]("NUMA", lambda board: spans(board.numa_nodes) or "-"),
    ColumnSpec[TopologyGpu]("CPUs", lambda board: spans(board.cpus) or "-", keep=4),
    ColumnSpec[TopologyGpu]("PCIe gen.", lambda board: _part_of_most(board.pcie_generation, board.pcie_generation_max)),
    ColumnSpec[TopologyGpu]("lanes", lambda board: _part_of_most(board.pcie_width, board.pcie_width_max)),
    ColumnSpec[TopologyGpu]("NVLinks", _links_text),
    ColumnSpec[TopologyGpu]("ECC", lambda board: _switch_text(board.ecc), keep=6),
    ColumnSpec[TopologyGpu]("corrected", lambda board: _whole_text(board.ecc_corrected), keep=1),
    ColumnSpec[TopologyGpu]("uncorrected", lambda board: _whole_text(board.ecc_uncorrected), keep=6),
    ColumnSpec[TopologyGpu]("persistence", lambda board: _switch_text(board.persistence), keep=2),
    ColumnSpec[TopologyGpu]("MIG", _mig_text, keep=6),
)
"""Columns of a GPU."""
