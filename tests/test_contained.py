"""A fault of wsbench in one metric, check, figure or claim: that part is missing with its reason, and everything else is there."""

import json

import pytest
from claims_maker import *  # noqa: F403
from judging import trial_of
from run_maker import make_run
from trial_maker import START_NS, Trial

from wsbench import metrics
from wsbench.analysis.claims import evaluate
from wsbench.analysis.reading import load
from wsbench.metrics import engine_checks, registry, verdict
from wsbench.metrics.findings import FAMILIES
from wsbench.metrics.trial_data import TrialData
from wsbench.records import contained
from wsbench.records.engine_files import Doc
from wsbench.records.errors import UserError
from wsbench.report import document, export, figures
