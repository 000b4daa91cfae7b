"""Write docs/map.md from the registry of statements: `python docs/map.py`."""

import re
from pathlib import Path

from deeplin.certificates.statements import STATEMENTS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "map.md"

TESTS = {
    "test_toy_product_has_sharpness_depth_minus_one": "FM-toy",
    "test_a_corrupted_flow_is_caught": "FM-L1",
    "test_errata_E12_the_variational_formula_gives_the_largest_modulus": "FM-sharp",
    "test_exact_value_lies_in_the_bracket_and_matches_the_formula": "FM-T1",
    "test_no_minimizer_is_flatter_than_the_bounds": "FM-T2",
    "test_errata_E8_the_printed_bound_would_exceed_the_minimal_sharpness": "FM-rescale",
    "test_descent_beside_the_flattest_minimizer_settles_only_below_the_threshold": "FM-crit",
    "test_every_statement_holds_from_a_strictly_small_start": "FM-A1 FM-L2 FM-A2 FM-C1 FM-C2",
    "test_scale_of_the_start_is_its_definition": "FM-ε",
    "test_best_constant_is_the_maximum_over_all_thresholds": "FM-T3",
    "test_measured_convergence_is_faster_than_the_certified_rate": "FM-L7",
    "test_theorem_4_and_its_corollary_hold_where_their_hypotheses_do": (
        "FM-grad-sandwich FM-L9 FM-T4 FM-C3"
    ),
    "test_failure_probability_in_log_space_is_the_plain_one": "FM-L3",
    "test_a_true_flow_breaks_no_statement": "FM-grad FM-L8 X-1",
    "test_multivariate_sandwich_holds_for_square_layers": "FM-T5",
    "test_statements_about_no_run_hold": "FM-L4 FM-L5 FM-L6",
    "test_the_flow_of_the_branches_is_the_flow_of_the_layers": "Talk-res",
    "test_logistic_loss_falls_at_any_rate_where_regression_diverges": "Talk-log",
    "test_a_step_that_gains_too_little_breaks_the_descent_lemma": "Talk-descent",
    "test_exact_value_is_what_direct_minimization_over_minimizers_finds": "X-2",
    "test_final_sharpness_tends_to_the_balanced_one_as_the_start_vanishes": "X-3",
    "test_minimal_sharpness_is_what_direct_minimization_finds": "X-7",
    "test_minimal_trace_is_what_direct_minimization_finds": "X-8",
    "test_layerwise_rates_count_by_their_geometric_mean": "X-11",
    "test_the_minimum_is_what_direct_minimization_finds": "X-9",
    "test_the_enumerated_second_moment_is_neutral_at_the_threshold": "X-10",
    "test_long_iteration_ends_on_the_stable_orbit": "X-12",
    "test_modes_agree_with_integration": "X-13",
    "test_brackets_and_ratio_are_those_of_the_reference_table": "X-18",
    "test_sharpness_at_the_end_lies_in_its_interval_without_the_second_assumption": "X-19",
    "test_flow_from_the_largest_allowed_gap_stays_within_its_radius": "X-20",
    "test_depths_are_those_of_the_reference_table": "X-21",
    "test_ranks_are_the_sums_of_their_definition": "BO-D2.1",
    "test_nothing_but_the_printed_zero_case_is_violated_on_true_flows": (
        "BO-D2.2 BO-A1 BO-A2 BO-A3 BO-A4 BO-A5 BO-L5.3 BO-L5.5 BO-L4.1"
    ),
    "test_the_interpolant_is_the_printed_formula": "BO-D2.5",
    "test_measured_constants_are_their_ratios": "BO-L4.3 BO-L5.6 BO-L5.7",
    "test_the_reported_constant_is_the_smallest": "BO-sigma-min BO-trace",
    "test_a_spike_has_the_ranks_of_its_definition": "BO-D3.3",
    "test_errata_E6_entries_of_size_alpha_have_singular_values_of_size_alpha_root_m": "BO-D2.3",
    "test_the_bound_on_the_weights_is_over_all_subsets_of_layers": "BO-D2.4",
    "test_errata_E5_the_gradient_of_the_sum_of_squares_has_a_factor_two": "BO-L4.4",
    "test_errata_E5_the_constant_of_lemma_4_5_is_attained": "BO-L4.5",
    "test_errata_E4_the_certificate_reports_the_printed_case_as_violated": "E-4",
    "test_a_corrupted_first_layer_is_caught": "BO-L5.4",
    "test_a_full_network_meets_the_hypotheses_of_convergence": "BO-D5.1 BO-LB.3 BO-P5.2",
    "test_singular_values_out_of_range_break_the_first_lemma": "BO-LB.1",
    "test_a_large_loss_at_the_start_needs_a_large_constant": "BO-LB.2",
    "test_a_loss_that_stops_falling_breaks_the_rates": "BO-LB.4",
    "test_the_lazy_distance_is_the_largest_change_of_a_layer": "BO-LB.5",
    "test_errata_E19_the_constant_over_all_subsets_grows_like_the_depth": "E-19",
    "test_risk_is_the_quadratic_form_of_the_dense_matrix": "BO-risk",
    "test_the_parts_of_the_risk_are_the_printed_traces": "BO-L4.2",
    "test_the_bound_of_theorem_3_1_is_its_formula": "BO-T3.1",
    "test_the_bound_of_theorem_3_2_is_its_formula": "BO-T3.2",
    "test_the_bound_of_corollary_3_4_is_its_formula": "BO-C3.4",
    "test_depth_and_initialization_leave_the_conditional_variance_alone": "BO-disc",
    "test_the_modified_identity_certifies": "BO-mod-id",
    "test_descent_momentum_and_flow_of_the_reduced_network_are_those_of_the_full_one": "X-4",
    "test_singular_values_of_the_drawn_state_are_distributed_as_those_of_the_network": "X-5",
    "test_errata_E4_the_printed_case_holds_where_its_correct_condition_does": "X-6",
    "test_the_expected_distance_is_the_mean_over_the_first_layer_beside_the_data": "X-25",
    "test_X26_to_X28_hold_along_flows_and_where_their_starts_fit": "X-26",
    "test_X31_certifies_descent_where_its_hypotheses_are_met": "X-31",
    "test_X33_the_best_interpolant_is_the_constrained_minimum": "X-33",
    "test_no_minimizer_found_by_search_is_flatter_and_the_minimizer_attains_it": "X-14",
    "test_minimal_sharpness_is_the_reference_and_the_minimizer_attains_it": "X-17",
    "test_the_minimum_with_weight_decay_is_the_reference": "X-15",
    "test_parallel_paths_have_the_reference_sharpness": "X-22",
    "test_sam_settles_below_its_rate_and_not_above": "X-23",
    "test_adam_settles_below_its_rate_and_not_above": "X-24",
    "test_X27_no_counterexample_among_random_flows": "X-27",
    "test_X28_has_the_reference_values": "X-28",
    "test_X32_bounds_every_draw_from_below_by_about_one_minus_df2_over_n": "X-32",
    "test_X34_is_tight_at_the_flattest_network_and_a_larger_bound_is_violated": "X-34",
    "test_X35_holds_and_its_sides_are_those_of_the_added_risk": "X-35",
    "test_errata_E24_a_simulated_flow_moves_as_far_as_the_law_says": "E-24",
}
"""Test → the statements for which it is the closest one."""

FIGURES = {
    "FM-1 to FM-7": "FM-sharp",
    "FM-1, FM-4": "FM-T1 FM-T2",
    "FM-1, FM-2, FM-4": "FM-crit",
    "FM-4": "FM-T4 FM-C3 Talk-res",
    "Talk-log": "Talk-log",
    "FM-1 to FM-6": "X-1",
    "FM-2": "X-2",
    "FM-1": "FM-L1 FM-ε FM-C2 X-3",
    "BO-1, BO-3": "BO-D2.5 BO-T3.2 X-4 X-5 X-25",
    "BO-1": "BO-D3.3 X-27",
    "BO-1, BO-2, BO-3": "BO-D2.3 BO-risk BO-disc",
}
"""Figures → the statements that show in them."""

HEAD = """# Map of statements

Every statement that the library knows: what it says, the function that evaluates it on a run (a row
of [`dl.certify`](concepts/certificates.md)), the closest test, and the figures in which it shows.
FM is the paper on flat minima, BO the one on benign overfitting, X the
[exact results](exact-results.md), E the [errata](errata.md). `make fuzz` evaluates all of them on
thousands of random runs (`tests/fuzz/true_runs.py`). `python docs/map.py` writes this page.

| id | statement | reference | function | test | figures |
|---|---|---|---|---|---|
"""


def by_statement(table: dict[str, str]) -> dict[str, str]:
    """Statement → the key of `table` whose ids contain it."""
    return {id: key for key, ids in table.items() for id in ids.split()}


def test_files() -> dict[str, str]:
    """Name of each test → its file."""
    return {
        name: str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.M)
    }


def page() -> str:
    """Return the page; a KeyError names a statement without a test, or a test that is gone."""
    tests, figures, files = by_statement(TESTS), by_statement(FIGURES), test_files()
    lines = []
    for id, entry in STATEMENTS.items():
        function = f"src/{entry.assess.__module__.replace('.', '/')}.py::{entry.assess.__name__}"
        test = tests[id]
        cells = (f"`{id}`", entry.title, entry.reference, f"`{function}`")
        cells = (*cells, f"`{files[test]}::{test}`", figures.get(id, ""))
        lines.append(f"| {' | '.join(cells)} |\n")
    return HEAD + "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
