"""GPUs of a fleet: the pages of its dcgm-exporters, each GPU with its host, and with the pods that use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gpumon.readings.frame import GpuReading
from gpumon.sources.dcgm_gpus import ExporterGpus
from gpumon.sources.dcgm_page import read_page
from gpumon.sources.endpoint import NO_SCAN
from gpumon.sources.prometheus.engine import Scrape
from gpumon.sources.prometheus.hosts import HostLabels, User, host_of, user_of

EXPORTER_DOWN: Final = (
    "the Prometheus cannot scrape this host's dcgm-exporter (up is 0): see its page /targets for the reason"
)


def gpu_name(uuid: str, instance: str) -> str:
    """Identity of a GPU, or of its slice with this id of a GPU instance."""
    return f"MIG-{uuid}/{instance}" if instance else uuid


class ExporterTarget:
    """One dcgm-exporter as a Prometheus keeps it. A scrape is read once, however often it is asked for."""

    def __init__(self, interval_s: float) -> None:
        self.gpus: tuple[tuple[str, GpuReading], ...] = ()
        """Each GPU with its host's name."""
        self.users: dict[str, tuple[User, ...]] = {}
        """UUID -> pods that use it."""
        self.uuids_on_page: frozenset[str] = frozenset()
        """UUIDs of the GPUs and slices on its newest page; `gpus` has some of earlier pages, too."""
        self.page_labels: dict[str, str] = {}
        """Labels that all GPUs of its newest page have alike."""
        self.cut = False
        """The newest page has more GPUs than are read."""
        self._exporter_gpus = ExporterGpus(interval_s)
        self._scraped_s = 0.0
        """Unix time of the newest scrape that was read; 0 where it did not answer since."""
        self._hosts: dict[str, str] = {}
        """UUID -> name of the host."""

    def miss(self) -> None:
        """Note that the exporter did not answer: its GPUs stay as they were, with their moment."""
        self._exporter_gpus.miss()
        self._scraped_s = 0.0

    def take(self, scrape: Scrape, names: HostLabels) -> None:
        """Read a scrape into `gpus`, unless it is the last one."""
        if scrape.scraped_s == self._scraped_s:
            return
        page = read_page(NO_SCAN._replace(values=scrape.values))
        self.cut = page.cut
        if not page.gpus:
            return
        self._scraped_s = scrape.scraped_s
        self._exporter_gpus.follow(page, scrape.scraped_s, scrape.scraped_s)
        self._read_labels(scrape, names)
        # Within a host of the fleet every GPU is of that machine: as in a reading of this one, `host` is empty.
        readings = (msgspec.structs.replace(reading, host="") for reading in self._exporter_gpus.readings)
        self.gpus = tuple((self._hosts.get(reading.uuid, ""), reading) for reading in readings)

    def _read_labels(self, scrape: Scrape, names: HostLabels) -> None:
        """Note host and users of each GPU and slice, by the labels of its series."""
        cluster = names.cluster(scrape.target.labels)
        users: dict[str, dict[User, None]] = {}
        of_gpus: list[Mapping[str, str]] = []
        for series in scrape.values:
            uuid = series.labels.get("UUID") or series.labels.get("uuid")
            if not uuid:
                continue
            name = gpu_name(uuid, series.labels.get("GPU_I_ID", ""))
            if name not in users:
                host = host_of(scrape.target.labels, series.labels, names.hosts)
                of_gpus.append(series.labels)
                self._hosts[name] = host
                self._hosts[uuid] = host
                users[name] = {}
            user = user_of(series.labels, names.cluster(series.labels) or cluster)
            if user is not None:
                users[name][user] = None
        self.uuids_on_page = frozenset(users)
        if of_gpus:
            self.page_labels = dict(set(of_gpus[0].items()).intersection(*(labels.items() for labels in of_gpus)))
        self.users = {name: tuple(users_of_gpu) for name, users_of_gpu in users.items()}
