"""Header names of the wire contract. They are fixed: users' code depends on them."""

from typing import Final

PREFIX: Final = "x-scheduler-"

ACTION: Final = "x-scheduler-action"
DELIVER_TO: Final = "x-scheduler-deliver-to"
DELIVER_AT: Final = "x-scheduler-deliver-at"
DELAY: Final = "x-scheduler-delay"
CRON: Final = "x-scheduler-cron"
TIMEZONE: Final = "x-scheduler-timezone"
REQUEST_ID: Final = "x-scheduler-request-id"
DELIVER_PARTITION: Final = "x-scheduler-deliver-partition"
EXPIRES_AT: Final = "x-scheduler-expires-at"
SPREAD: Final = "x-scheduler-spread"
MISFIRE: Final = "x-scheduler-misfire"

REQUEST_HEADERS: Final = (
    ACTION,
    DELIVER_TO,
    DELIVER_AT,
    DELAY,
    CRON,
    TIMEZONE,
    REQUEST_ID,
    DELIVER_PARTITION,
    EXPIRES_AT,
    SPREAD,
    MISFIRE,
)
"""What a request may carry under our prefix; anything else there is a slip and is rejected."""

SCHEDULED_FOR: Final = "x-scheduler-scheduled-for"
SOURCE: Final = "x-scheduler-source"
ERROR: Final = "x-scheduler-error"
ERROR_CODE: Final = "x-scheduler-error-code"
REJECTED_AT: Final = "x-scheduler-rejected-at"

STALE_HEADERS: Final = (SCHEDULED_FOR, SOURCE, ERROR, ERROR_CODE, REJECTED_AT)
"""Traces of an earlier delivery or rejection: dropped when such a record is produced again."""

ACTION_USER_KEY: Final = "x-scheduler-user-key"
ACTION_PLAN: Final = "x-scheduler-plan"
"""Only on the actions topic: the user's key, and the normalised plan. Always the last two headers,
in this order, so that the headers before them are the request's own (see `actions`)."""
