"""Which checkpoint tensors each model tensor is made of, explicitly and completely."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from flare.errors import CheckpointError
from flare.prepare.checkpoint import TensorInfo, TensorStore, known_tensor
from flare.prepare.table_rules import TableRule
from flare.prepare.tensor_transforms import ConcatRows, Identity, Transform

if TYPE_CHECKING:
    import torch


class _Sources(Sequence["torch.Tensor"]):
    """Tensors that are loaded when they are indexed: a file is mapped for one at a time."""

    def __init__(self, store: TensorStore, names: tuple[str, ...]) -> None:
        self._store = store
        self._names = names

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: Any) -> Any:
        return self._store.load(self._names[index])


_IDENTITY = Identity()


@dataclass(frozen=True)
class TensorRule:
    """One model tensor: `transform` applied to the tensors `sources`, in this order."""

    sources: tuple[str, ...]
    transform: Transform = _IDENTITY


class TensorMap:
    """Rules by target name. `ignored` are checkpoint tensors left out on purpose, with the reason; `tables`
    are the core's tables by the names of their core tensors."""

    def __init__(
        self,
        rules: Mapping[str, TensorRule],
        ignored: Mapping[str, str] | None = None,
        tables: Mapping[str, TableRule] | None = None,
    ) -> None:
        self.rules = MappingProxyType(dict(rules))
        self.ignored = MappingProxyType(dict(ignored or {}))
        self.tables = MappingProxyType(dict(tables or {}))

    @classmethod
    def rows(
        cls, sources: Mapping[str, Sequence[str]], ignored: Mapping[str, str] | None = None
    ) -> TensorMap:
        """Targets that are one source each, or several stacked along the first dimension."""
        rules = {
            target: TensorRule(tuple(names), Identity() if len(names) == 1 else ConcatRows())
            for target, names in sources.items()
        }
        return cls(rules, ignored)

    def check(self, store: TensorStore) -> None:
        """Compare with the headers of `store`, before anything is loaded.

        Raises: CheckpointError listing every needed tensor it lacks and every tensor no rule mentions, or
        naming the target whose sources do not fit its transform.
        """
        used = {source for rule in self.rules.values() for source in rule.sources}
        used |= {source for table in self.tables.values() for source in table.sources}
        missing = sorted(used - store.tensors.keys())
        unmapped = sorted(store.tensors.keys() - used - self.ignored.keys())
        complaints = []
        if missing:
            complaints.append(f"missing: {', '.join(missing)}")
        if unmapped:
            complaints.append(f"not mapped: {', '.join(unmapped)}")
        if complaints:
            message = f"checkpoint tensors do not match the recipe; {'; '.join(complaints)}"
            raise CheckpointError(message, field=(missing or unmapped)[0])
        for target in self.rules:
            self.info(target, store)
        for table in self.tables.values():
            table.shape(store)

    def left_out(self, store: TensorStore) -> list[str]:
        """One line for every reason why tensors of `store` are ignored."""
        reasons = Counter(reason for name, reason in self.ignored.items() if name in store.tensors)
        return [f"Left out: {count} tensors ({reason})" for reason, count in sorted(reasons.items())]

    def info(self, target: str, store: TensorStore) -> TensorInfo:
        """The header that `target` will have; its dtype is that of its first source."""
        rule = self._rule(target)
        infos = [known_tensor(store.tensors, source) for source in rule.sources]
        try:
            shape = rule.transform.shape([info.shape for info in infos])
        except ValueError as error:
            raise CheckpointError(
                f"{target} from {', '.join(rule.sources)}: {error}", field=target
            ) from error
        return TensorInfo(target, shape, infos[0].dtype)

    def assemble(self, target: str, store: TensorStore) -> torch.Tensor:
        """Load the sources of one target and make it. Raises CheckpointError for unknown or unfit tensors."""
        self.info(target, store)
        rule = self._rule(target)
        try:
            return rule.transform.apply(_Sources(store, rule.sources))
        except CheckpointError:
            raise
        except ValueError as error:
            raise CheckpointError(f"{target}: {error}", field=target) from error

    def _rule(self, target: str) -> TensorRule:
        if target not in self.rules:
            raise CheckpointError(f"the recipe maps no checkpoint tensor to {target}", field=target)
        return self.rules[target]
