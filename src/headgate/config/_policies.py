"""The policies as keys of a section: a key for each declaration in ``headgate.policies``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, Field, create_model

from headgate.config._model import Model
from headgate.policies import POLICY_SETTINGS, PolicySetting

__all__ = ["PolicySection", "with_policies"]

_KEYS: Final = {name: f"{name}_" if hasattr(BaseModel, name) else name for name in POLICY_SETTINGS}
"""Attribute by policy. pydantic uses some names for itself."""


class PolicySection(Model):
    """A section that sets policies."""

    def policies(self) -> dict[str, Any]:
        """Return the policies that the section sets or has by default, by their names in ``Policies``."""
        values = {name: self.policy(name) for name in _KEYS}
        return {name: value for name, value in values.items() if value is not None}

    def policy(self, name: str) -> Any:
        """Return one of them; None: the section does not set it."""
        value = getattr(self, _KEYS[name], None)
        return None if value is None else POLICY_SETTINGS[name].parse(value)


Section = TypeVar("Section", bound=PolicySection)


def with_policies(*, of_table: bool) -> Callable[[type[Section]], type[Section]]:
    """Add the policies to a section's keys.

    :param of_table: all of them, which are None by default; else those for all tables, with their defaults.
    """

    def derived(section: type[Section]) -> type[Section]:
        settings = [one for one in POLICY_SETTINGS.values() if of_table or one.is_common]
        keys: dict[str, Any] = {_KEYS[one.name]: _key(one, of_table=of_table) for one in settings}
        return create_model(
            section.__name__, __base__=section, __doc__=section.__doc__, __module__=section.__module__, **keys
        )

    return derived


def _key(setting: PolicySetting, *, of_table: bool) -> tuple[Any, Any]:
    def checked(value: Any) -> Any:
        if value is not None:
            setting.parse(value)
        return value

    return (
        Annotated[setting.kind | None if of_table else setting.kind, AfterValidator(checked)],
        Field(
            default=None if of_table else setting.default,
            alias=setting.name if _KEYS[setting.name] != setting.name else None,
            description="as in `[source]`, for this table" if of_table and setting.is_common else setting.help,
        ),
    )
