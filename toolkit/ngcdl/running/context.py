"""What a run is prepared with, besides what was asked for."""

from __future__ import annotations

from ngcdl.frozen import dataclass
from ngcdl.planning.show import Show
from ngcdl.settings import Settings
from ngcdl.storing.store import Store


@dataclass(frozen=True)
class Context:
    """This user's settings, the store that gets the record, and where progress is shown."""

    settings: Settings
    store: Store
    show: Show
