"""Orchestrated sagas for Flask and other WSGI applications.

Declare a `Saga`, give it to `StackSaga` (or to an `Engine` without Flask), and run it from a view.
"""

from __future__ import annotations

from stacksaga_flask.clock import ManualTime, SystemTime, TimeSource
from stacksaga_flask.config import Domain, Settings, read_settings
from stacksaga_flask.engine.engine import Engine, Transaction
from stacksaga_flask.engine.node import Observer, StateChange
from stacksaga_flask.errors import (
    ClockSkew,
    Compensated,
    ConfigurationError,
    DefinitionError,
    InvalidKey,
    KeyConflict,
    NoSuchTransaction,
    NotStarted,
    OutcomeUnknown,
    PayloadError,
    PayloadTooLarge,
    RequestUsedInStep,
    SagaNotRegistered,
    SchemaMismatch,
    SchemaMissing,
    StackSagaError,
    StartUnknown,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    UnsupportedPlatform,
)
from stacksaga_flask.extension import StackSaga
from stacksaga_flask.extension.answers import Answers
from stacksaga_flask.extension.signals import step_attempted, transaction_state_changed
from stacksaga_flask.saga.context import StepContext
from stacksaga_flask.saga.definition import Saga
from stacksaga_flask.saga.outcome import Rejected, Retryable
from stacksaga_flask.saga.payload_dict import untagged
from stacksaga_flask.saga.step import Step
from stacksaga_flask.stopping import stop_at_sigterm
from stacksaga_flask.store.contract import ExecutionType, RunningStatus, Tryout, TryoutStatus

__all__ = [
    "Answers",
    "ClockSkew",
    "Compensated",
    "ConfigurationError",
    "DefinitionError",
    "Domain",
    "Engine",
    "ExecutionType",
    "InvalidKey",
    "KeyConflict",
    "ManualTime",
    "NoSuchTransaction",
    "NotStarted",
    "Observer",
    "OutcomeUnknown",
    "PayloadError",
    "PayloadTooLarge",
    "Rejected",
    "RequestUsedInStep",
    "Retryable",
    "RunningStatus",
    "Saga",
    "SagaNotRegistered",
    "SchemaMismatch",
    "SchemaMissing",
    "Settings",
    "StackSaga",
    "StackSagaError",
    "StartUnknown",
    "StateChange",
    "Step",
    "StepContext",
    "StoreError",
    "StoreRefused",
    "StoreUnavailable",
    "SystemTime",
    "TimeSource",
    "Transaction",
    "Tryout",
    "TryoutStatus",
    "UnsupportedPlatform",
    "read_settings",
    "step_attempted",
    "stop_at_sigterm",
    "transaction_state_changed",
    "untagged",
]
