"""A folder of files as a proposer: each file with a class ModelNew, one a round."""

from __future__ import annotations

from pathlib import Path
from typing import Sequence

from kgen.agent.proposer import FREE, Context, Proposal, Proposals, Settings, Verdict
from kgen.errors import InputError


class Folder:
    """Proposes the ``.py`` files of a folder in the order of their names."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder: --folder names one with files of candidates")
        self._files = sorted(folder.glob("*.py"))
        self._told = 0

    @classmethod
    def of(cls, settings: Settings) -> Folder:
        if settings.folder is None:
            raise InputError("the proposer folder needs --folder FOLDER")
        return cls(Path(settings.folder))

    def propose(self, context: Context) -> Proposals:
        if self._told >= len(self._files):
            return Proposals(())
        file = self._files[self._told]
        try:
            return Proposals((Proposal(FREE, file.read_text(encoding="utf-8")),))
        except (OSError, UnicodeDecodeError) as error:
            return Proposals((Proposal(FREE, fault=f"{file.name}: cannot be read: {error}"),))

    def tell(self, verdicts: Sequence[Verdict]) -> None:
        self._told += 1
