"""Names of version 0.1 that have another place or none, and arguments that have another name.

`shpi._moved` lets modules ask these tables. A name that moved still works, with a
DeprecationWarning; a name that is gone raises an ImportError with the words of this file.
"""

from __future__ import annotations

from collections.abc import Iterable


def _places(old: str, new: str, names: str) -> dict[str, str]:
    return {f"{old}.{name}": f"{new}.{name}" for name in names.split()}


def _same(words: str, places: Iterable[str]) -> dict[str, str]:
    return dict.fromkeys(places, words)


# The old place of a name: the new one.
NAMES = {
    "shpi.data._read.read.asked": "shpi.data._read.read.apply_metric",
    "shpi.data.audit.findings.DROPPED": "shpi.data.audit.findings.DROPPED_SHARE",
    "shpi.data.audit.findings.HANGS": "shpi.data.audit.findings.ENDINGS_RELATIVE_CHANGE",
    "shpi.data.audit.findings.OUTSIDE": "shpi.data.audit.findings.OUTSIDE_SHARE",
    "shpi.data.question.whole_story": "shpi.data.question.terminate_unknown_endings",
    "shpi.data.question.endings.whole_story": "shpi.data.question.endings.terminate_unknown_endings",
    **_places("shpi.envs.hiv", "shpi.envs.hiv.ode", "BASELINE DRUGS PATIENT_20 STATE_NAMES"),
    **_places("shpi.envs.hiv", "shpi.envs.hiv.taylor", "TOLERANCE"),
    **_places("shpi.envs.kuairand", "shpi.envs.kuairand.counters", "COUNTERS FED_BACK HOURS PLACE"),
    **_places("shpi.envs.kuairand", "shpi.data.datasets.kuairand", "USERS"),
    **_places("shpi.envs.recogym", "shpi.envs.recogym.world", "BANDIT ORGANIC STOP"),
    **_places("shpi.envs.recogym", "shpi.envs.recogym.simulator", "CLICK PHASE TICK"),
    **_places("shpi.envs.fitted.files", "shpi.files.bundle", "MANIFEST"),
    **_places("shpi.experiments.beyond.defaults", "shpi.experiments._run.settings", "K"),
    "shpi.experiments._run.work.fitted": "shpi.experiments._run.work.fit_cached",
    "shpi.experiments._run.work.made": "shpi.experiments._run.work.make_learner",
    "shpi.experiments._run.work.tried": "shpi.experiments._run.work.try_policy",
    "shpi.experiments._run.worlds.Kept": "shpi.experiments._run.worlds.CachedValue",
    "shpi.experiments._run.worlds.kept_policy": "shpi.experiments._run.worlds.cached",
    **_places("shpi.learners.online", "shpi.learners.online._local_scale", "NARROW"),
    **_places("shpi.ope.evaluate", "shpi.ope.estimators.base", "LEAST_EFFECTIVE"),
    "shpi.ope.estimators.base.apart": "shpi.ope.estimators.base.standardised_difference",
    **_places("shpi.ope.gate", "shpi.ope.estimators.base", "LEAST_EFFECTIVE"),
    **_places("shpi.ope.gate", "shpi.ope.verdict.deliberation", "CURABLE"),
}

_BEST = "shpi.learners.Best chooses among learners"
_TILTED = "shpi.policies.Tilted goes from the logging policy to greedy"
_ONE_TEST = "OfflineSHPI tests its candidates itself; policy.trials has what the test said"
_BUNDLE = "shpi.files.bundle.save_bundle writes manifest and arrays, whole or not at all"
_WIDTHS = "shpi.features.defaults.may_curve says up to how many dimensions default features may curve"
_CELLS = "shpi.experiments.catalogue.find(name) has the methods and worlds of a table"

# Modules and names that are gone: what took their place.
GONE = {
    "shpi.learners.HeldOutChoice": _BEST,
    "shpi.learners.evidence": _ONE_TEST,
    "shpi.learners.held_out": _BEST,
    "shpi.learners.horizon": "OfflineSHPI tests several k as candidates; OfflineSHPI(k=...) takes one",
    "shpi.learners.shape": "OfflineSHPI tests several shapes of f; OfflineSHPI(oracle=...) takes one",
    "shpi.learners.sharper": _TILTED,
    "shpi.ope.checks.thinned": "Problem.sample draws users by their hash (shpi.ope.Problem)",
    "shpi.experiments._run.work.with_kept_value": "shpi.experiments._run.work.with_shared_parts",
    "shpi.cli.verbs.evaluate.headed": "str(evaluation) starts with the verdict",
    **_same(_BUNDLE, ("shpi.policies.files.ARRAYS", "shpi.policies.files.write_folder")),
    **_same(_BUNDLE, ("shpi.envs.fitted.files.ARRAYS",)),
    **_same(
        _CELLS,
        (
            f"shpi.experiments.beyond.defaults.{name}"
            for name in (
                "A_MU",
                "A_PI",
                "DIRECT",
                "MINORS",
                "SESSION",
                "SESSIONS",
                "SHOWN_BY_PAPER",
                "minors",
            )
        ),
    ),
    **_same(
        _WIDTHS,
        (
            "shpi.learners.cloning.FEW_DIMENSIONS",
            "shpi.ope.models.recipes.FEW_DIMENSIONS",
            "shpi.oracles.ridge.FEW_DIMENSIONS",
            "shpi.values._lstd.choose.SMALL_WIDTH",
        ),
    ),
    **_same(
        _ONE_TEST,
        (
            "shpi.learners.constrained.shpi.GAIN_CLIP",
            "shpi.learners.improved.CLEAR",
            "shpi.learners.improved.LEAST_EXPLORED",
            "shpi.learners.improved.clustered_error",
            "shpi.learners.improved.gain_parts",
            "shpi.learners.improved.held_out_gain",
            "shpi.learners.offline.GAIN_CLIP",
            "shpi.learners.offline.NOT_BY_CHANCE",
            "shpi.learners.offline.PROBE",
            "shpi.learners.offline.SHAPE_PROBE",
            "shpi.learners.offline.Side",
        ),
    ),
    **_same(_TILTED, ("shpi.learners.offline.FARTHER", "shpi.learners.offline.UNPROVEN")),
    **_same(
        "the check of propensities is a joint test: shpi.ope.checks.balance",
        (
            f"shpi.ope.diagnostics.propensities.{name}"
            for name in ("CLONE_ABOVE", "CLONE_BELOW", "CLONE_ROWS")
        ),
    ),
    **_same(
        "Verdict.reasons says what estimators leave out (shpi.ope.Verdict)",
        ("shpi.ope.gate.LEFT_OUT", "shpi.ope.gate.leaves_out"),
    ),
    "shpi.ope.overlap.Counts": "one pass makes all sums (shpi.ope.overlap.Sums)",
    "shpi.ope.evaluate.asked": "Evaluation.question holds it (shpi.ope.Evaluation)",
    "shpi.ope._log.facts.check_policy": "Problem.of checks its policy (shpi.ope.problem.Problem)",
    "shpi.ope._log.sessions.session_steps": "KStepSHPI counts them (shpi.ope.estimators.kstep.KStepSHPI)",
    "shpi.ope.estimators.kstep.Deltas": "shpi.ope.estimators.kstep.WeightedDeltas has the deltas",
    "shpi.ope.estimators.robust.through_fits": "shpi.ope.models.backups.contributions of adjoints",
    "shpi.ope.estimators.kstep.weighted_deltas": "shpi.ope.estimators.kstep.WeightedDeltas",
    "shpi.data._read.assemble.duplicated": "it takes a table now: shpi.data._read.assemble.repeated_rows",
    "shpi.features.base.at_least_one_row": "shpi.features.base.as_matrix takes not_empty=True",
    "shpi.report.plots.canvas.polygon": "Canvas.path takes the points (shpi.report.plots.canvas.Canvas)",
    "shpi.report.plots.theme.series": "classes are c0, c1, … (as many as shpi.report.plots.theme.SERIES)",
    **_same(
        "one function draws all shapes: shpi.report.plots.legend.symbol",
        (f"shpi.report.plots.legend.{name}" for name in ("diamond", "dot", "stroke", "swatch", "tick")),
    ),
    "shpi.cli.verbs.evaluate.check_target": "shpi.cli.verbs.evaluate.run checks --out and --json",
    "shpi.cli.verbs.evaluate.judged": "it called shpi.ope.candidates.compare",
    "shpi.cli.verbs.fit.save": "it called shpi.policies.save_policy",
    "shpi.files.npz.read_npz_from": "shpi.files.npz.read_npz reads the file at a path",
    "shpi.files.bundle.load_arrays": "shpi.files.bundle.load_bundle reads manifest and arrays",
    "shpi.report.sections.lift.failing": "evaluation.diagnostics have a severity (shpi.ope.Evaluation)",
    "shpi._core.progress.in_stages": "stages decorates too: shpi._core.progress.stages",
    "shpi.ope.estimators.direct.paired_estimate": "FQE and DirectMethod pair: shpi.ope.estimators.direct.FQE",
    "shpi.ope.estimators.importance.check_k": "PDIS and SNPDIS check it: shpi.ope.estimators.importance.PDIS",
    "shpi.ope.inference.steps.Shape": "StepMeans has its number (shpi.ope.inference.steps.StepMeans)",
    "shpi.ope.checks.sensitivity.MOST_ROWS": "Problem.sample draws users by their hash (shpi.ope.Problem)",
    **_same(
        "count_look recognises a growing log itself (shpi.ope.checks.looks.count_look)",
        ("shpi.ope.checks.looks.identity_of", "shpi.ope.checks.looks.file.identity_of"),
    ),
    "shpi.ope.checks.balance.instruments.Cells": "shpi.ope.checks.balance.instruments.Instruments cuts",
    "shpi.ope.checks.table.table_mean": "shpi.ope.checks.table.about_table compares with it",
    "shpi.ope.checks.days.by_day": "shpi.ope.checks.days.days_of sums by day",
    "shpi.ope.verdict.rare.widened": "Claim.of_lift adds the variance itself (shpi.ope.verdict.claims.Claim)",
    "shpi.ope.verdict.whole_horizon.proven_mixtures": "shpi.ope.verdict.whole_horizon.mixtures has them all",
    **_same(
        "LSTD sums in double precision at any size",
        ("shpi.values.lstd.SINGLE_GAP", "shpi.values.lstd.SINGLE_ROWS"),
    ),
    "shpi.oracles.ridge.MAX_STATISTICS": "shpi._core.memory.require_memory compares with the memory there is",
}

_CHUNK = {"part": "chunk"}
_BLOCK = {"part": "block"}

# Functions and classes whose arguments have other names: place -> {old name: new name}.
ARGUMENTS = {
    "shpi.experiments._page.compare.better": {"who": "reading"},
    "shpi.experiments._page.compare.steadier": {"who": "reading"},
    "shpi.experiments._run.run.draw": {"asked": "experiments"},
    "shpi.learners.constrained.baseline.limited": _BLOCK,
    "shpi.learners.constrained.baseline.limited_means": _BLOCK,
    "shpi.ope._log.sessions.session_discounts": _CHUNK,
    "shpi.ope.estimators.base.standardised_difference": {"one": "first", "other": "second"},
    "shpi.ope.estimators.baseline.reward_terms": _CHUNK,
    "shpi.ope.estimators.importance.prefix_sums": _CHUNK,
    "shpi.ope.estimators.importance.whole_weights": _CHUNK,
    "shpi.ope.estimators.importance.window_weights": _CHUNK,
    "shpi.ope.inference.censoring.moved": _CHUNK,
    "shpi.ope.models.linear.blocks": _CHUNK,
    "shpi.ope.models.linear.sums_by_step": _CHUNK,
    "shpi.ope.models.linear.target_codes": _CHUNK,
    "shpi.ope.models.linear.target_features": _CHUNK,
    "shpi.ope.models.predictions.predict": _CHUNK,
}
