"""The files of an import together: their runs, their problems, and the parts that no profile is made of."""

from __future__ import annotations

import msgspec

from gpumon.readings.text import clean
from gpumon.sizing.imports import inference_perf
from gpumon.sizing.imports.files import Document, FilePlace, ImportProblem, ImportRefused, documents
from gpumon.sizing.imports.formats import runs_of
from gpumon.sizing.imports.model_analyzer import is_gpu_sheet
from gpumon.sizing.imports.runs import BenchmarkRun


class ImportContent:
    """The content of all files, and everything that is wrong with them."""

    def __init__(self) -> None:
        self.runs: list[BenchmarkRun] = []
        self.gpu_sheets: list[Document] = []
        """Model Analyzer's files on the GPUs of its runs."""
        self.problems: list[ImportProblem] = []
        self.left_out: list[ImportProblem] = []
        """Parts that no profile is made of, and why."""
        self._models: dict[str, str] = {}
        """Folder -> the model that a config there names."""

    def read(self, file: str, data: bytes) -> None:
        """Add what a file holds; problems are kept instead of raised, so that all files are looked at."""
        if inference_perf.is_config(data):
            # The model that it names is that of the stages in its folder.
            model = clean(inference_perf.model_of(data), 200)
            if model:
                self._models[FilePlace(file).folder] = model
            else:
                self.left_out.append(ImportProblem(FilePlace(file), "", "names no model (server.model_name)"))
            return
        try:
            for document in documents(file, data):
                self._add(document)
        except ImportRefused as error:
            self.problems += error.problems

    def _add(self, document: Document) -> None:
        """Add the runs of a document. Raises ImportRefused."""
        # The file of the server alone has no configs: it measured no model.
        if is_gpu_sheet(document) and "Model Config Path" in document.header:
            self.gpu_sheets.append(document)
        document_runs = runs_of(document)
        self.runs += document_runs.runs
        self.left_out += document_runs.left_out

    def check(self, first: FilePlace) -> None:
        """Raise ImportRefused for all problems, or if there is no run: then `first`, the first file, is blamed."""
        if self.problems:
            raise ImportRefused(self.problems)
        if self.runs:
            return
        allowed = "metrics-model-inference.csv beside it" if self.gpu_sheets else ""
        no_run = ImportProblem(first, "", "holds no measurement of a model", allowed)
        raise ImportRefused((no_run, *self.left_out))

    def named_runs(self) -> list[BenchmarkRun]:
        """The runs; those of inference-perf with the model that the config in their folder names."""
        runs = list[BenchmarkRun]()
        for run in self.runs:
            model = self._models.get(run.place.folder, "")
            if run.tool == inference_perf.TOOL and not run.model and model:
                run = msgspec.structs.replace(run, model=model)
            runs.append(run)
        return runs
