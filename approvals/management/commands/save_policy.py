"""`save_policy`: write a policy, or the next version of one."""

from dataclasses import replace
from typing import Any, Final

from django.core.management.base import CommandParser

from approvals.durations import parse_duration
from approvals.policies import find_policy, save_policy
from approvals.policy_shapes import SIGNATURE_FIELDS, present_policy, say_changes
from approvals.policy_text import OUTCOMES, PolicyText
from runs.errors import InvalidInput
from runs.management.base import KernelCommand, as_json
from tools.models import ToolPolicy

_TEXTS: Final = {
    "tool": "only calls of this tool",
    "provider": "only calls of this provider's tools",
    "agent": "only calls by this agent",
    "when": "a CEL expression, such as 'amount > 500' or 'window.count > 20'",
    "window_money": "the argument that window.total adds up",
}
_TIMES: Final = {
    "approve_by": "how long people may take to decide (24h)",
    "execute_by": "how long an approval may be acted on (1h)",
    "escalate_after": "after how long without a verdict others may sign",
    "remind_after": "after how long without a verdict those who are asked hear of it again",
}


class Command(KernelCommand):
    help = (
        "Write a policy. Of one that exists, what is not given stays as it is; an empty text "
        "takes a value away. Every save is a new version."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("name", help="small letters, digits, - and _")
        parser.add_argument("--outcome", choices=OUTCOMES)
        for field, told in _TEXTS.items():
            parser.add_argument(_option(field), help=told)
        parser.add_argument("--groups", help="that must each sign, with commas between them")
        parser.add_argument("--quorum", type=int, help="how many people must sign (1)")
        parser.add_argument("--escalate-to", help="groups that may sign after --escalate-after")
        for field, told in _TIMES.items():
            parser.add_argument(_option(field), metavar="TIME", help=f"{told}, such as 90m")
        parser.add_argument("--window", metavar="TIME", help="what window.count looks back over")
        parser.add_argument("--window-by", choices=ToolPolicy.By.values, help="whose calls count")
        parser.add_argument("--reason", required=True, help="why; it is kept with the version")

    def act(self, options: dict[str, Any]) -> None:
        name = options["name"]
        before = find_policy(name)
        row = save_policy(
            actor=self.actor,
            name=name,
            text=_text_from(options, before),
            reason=options["reason"],
            based_on=before.version if before else 0,
        )
        if self.as_json:
            self.show_json(as_json(present_policy(row)))
        else:
            self.say(f"Saved {row}: {say_changes(before, row)}.")


def _text_from(options: dict[str, Any], before: ToolPolicy | None) -> PolicyText:
    if before is None and options["outcome"] is None:
        raise InvalidInput(
            field="--outcome", value="none", fix=f"Say one of: {', '.join(OUTCOMES)}."
        )
    text = PolicyText.of(before) if before else PolicyText(outcome=options["outcome"])
    if options["outcome"] not in (None, "require_approval"):
        # Nobody signs any more, so what was said about signing goes.
        text = replace(text, **{name: getattr(PolicyText, name) for name in SIGNATURE_FIELDS})
    given: dict[str, Any] = {
        field: options[field]
        for field in ("outcome", "quorum", "window_by", *_TEXTS)
        if options[field] is not None
    }
    for field in ("groups", "escalate_to"):
        if options[field] is not None:
            names = (one.strip() for one in options[field].split(","))
            given[field] = tuple(one for one in names if one)
    for field in _TIMES:
        if options[field] is not None:
            given[field] = _time(options[field], field, text)
    if options["window"] is not None:
        window = _time(options["window"], "window", text)
        given["window_seconds"] = int(window.total_seconds()) if window else None
    return replace(text, **given)


def _time(given: str, field: str, text: PolicyText) -> Any:
    if given.strip():
        return parse_duration(given, field=_option(field))
    # What has a value without being given one gets that back.
    return getattr(PolicyText(outcome=text.outcome), field, None)


def _option(field: str) -> str:
    return f"--{field.replace('_', '-')}"
