"""What every part of a report is made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Natural = Annotated[int, Field(ge=0)]


class ReportPart(BaseModel):
    """Strict part of a report; NaN and infinity are written as null."""

    model_config = ConfigDict(
        extra="forbid",
        ser_json_inf_nan="null",
        populate_by_name=True,
        protected_namespaces=(),
        use_attribute_docstrings=True,
    )
