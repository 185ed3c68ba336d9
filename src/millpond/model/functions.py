"""The SQL functions: the kind of each, whether a query may call it, and if not, why.

An answer is a function of the windows and relations at an instant and nothing else (SEMANTICS,
section 3). So a query may call a function only if somebody has examined it and found that its
value depends on its arguments alone. This is the one list of the examined functions. The parser
asks it which calls are aggregates, the planner which calls are allowed and which return several
rows, the aggregates under which name they are known. A function that is not in the list is refused,
also one that DuckDB adds later. To allow it, write its name here, once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What a call computes from rows."""

    SCALAR = "a value for each row"
    SET = "several rows for each row"
    AGGREGATE = "a value for each group"
    WINDOW = "a value for each row, from the rows around it; called with OVER"


class Refusal(Enum):
    """Why a query may not call a function, worded as an error's detail."""

    CLOCK = "Its answer depends on when it is called."
    CHANCE = "Its answer would change from call to call."
    SESSION = "Its answer depends on the session or the server it is called in."
    ORDER = "Its answer depends on the order in which rows are read."
    EFFECT = "It is called for what it does, and not for its answer."
    INSIDE = "It belongs to the inside of DuckDB."
    STATISTICS = "Without the least and the greatest value its answer depends on how rows are kept."
    OUTSIDE = "It reads what no stream or relation holds."
    FORM = "It takes a value and, in some cases, a constant of a range; no ORDER BY and no OVER."


class Growth(Enum):
    """How large a call's value, or the memory it needs, may be compared with its arguments."""

    NONE = "a fixed number of times as large"
    SUM = "as large as all arguments together, an argument in it as often as it is given"
    ROWS = "as large as the arguments of all rows together"
    FREE = "as large as a number, a format or a product of its arguments says"


@dataclass(frozen=True)
class Function:
    """A function of SQL.

    Attributes:
        name: In lower case.
        kind: What a call computes from rows.
        refusal: Why a query may not call it; None if it may.
        allowed_from: With so many arguments or more a call is allowed in spite of `refusal`.
        synonym_of: The function it is another name of.
        of_nothing: An aggregate's value over no rows, in SQL.
        is_word: Whether it is called without parentheses too.
        growth: How large its values may be.
    """

    name: str
    kind: Kind
    refusal: Refusal | None = None
    allowed_from: int | None = None
    synonym_of: str | None = None
    of_nothing: str = "NULL"
    is_word: bool = False
    growth: Growth = Growth.NONE

    def is_allowed(self, arguments: int = 0) -> bool:
        """Whether a query may call it with so many arguments."""
        if self.refusal is None:
            return True
        return self.allowed_from is not None and arguments >= self.allowed_from


#: Scalars that are allowed. The definitions of those DuckDB defines as macros were read.
_SCALARS = """
    != !__postfix !~~ !~~* % & && * ** + - ->> / // < <-> << <= <=> <@ = > >= >> @ @> ^ ^@
    __between __cast abs acos acosh add aggregate alias apply array_aggr array_aggregate
    array_append array_apply array_cat array_concat array_contains array_cosine_distance
    array_cosine_similarity array_cross_product array_distance array_distinct array_dot_product
    array_extract array_filter array_grade_up array_has array_has_all array_has_any
    array_indexof array_inner_product array_intersect array_length array_negative_dot_product
    array_negative_inner_product array_pop_back array_pop_front array_position array_prepend
    array_push_back array_push_front array_reduce array_resize array_reverse array_reverse_sort
    array_select array_slice array_sort array_to_json array_to_string
    array_to_string_comma_default array_transform array_unique array_value array_where array_zip
    ascii asin asinh atan atan2 atanh bar base64 bin binom bit_count bit_length bit_position
    bitstring bitstring_byte_comparable cardinality cast_to_type cbrt ceil ceiling century
    char_length character_length chr concat concat_ws constant_or_null contains cos cosh cot
    damerau_levenshtein date_add date_diff date_part date_sub date_trunc datediff datepart
    datesub datetrunc day dayname dayofmonth dayofweek dayofyear days_in_month decade
    decimal_division decode degrees divide editdist3 element_at encode ends_with enum_code
    enum_first enum_last enum_range enum_range_boundary epoch epoch_ms epoch_ns epoch_us
    equi_width_bins era even exp factorial fdiv filter flatten floor fmod format format_bytes
    formatreadabledecimalsize formatreadablesize from_base64 from_binary from_hex from_json
    from_json_strict gamma gcd generate_series get_bit grade_up greatest greatest_common_divisor
    grouping grouping_id hamming hash hex hour icu_sort_key if ilike_escape instr
    is_histogram_other_bin isfinite isinf isnan isodow isoyear jaccard jaro_similarity
    jaro_winkler_similarity json json_array json_array_length json_contains json_deep_merge
    json_exists json_extract json_extract_path json_extract_path_text json_extract_string
    json_insert json_keys json_merge_patch json_merge_patch_diff json_normalize json_object
    json_pretty json_quote json_remove json_replace json_set json_strip_nulls json_structure
    json_transform json_transform_strict json_type json_valid json_value julian last_day lcase
    lcm least least_common_multiple left left_grapheme len length length_grapheme levenshtein
    lgamma like_escape list_aggr list_aggregate list_any_value list_append list_apply
    list_approx_count_distinct list_avg list_bit_and list_bit_or list_bit_xor list_bool_and
    list_bool_or list_cat list_concat list_contains list_cosine_distance list_cosine_similarity
    list_count list_distance list_distinct list_dot_product list_element list_entropy
    list_extract list_filter list_first list_grade_up list_has list_has_all list_has_any
    list_histogram list_indexof list_inner_product list_intersect list_kurtosis
    list_kurtosis_pop list_last list_mad list_max list_median list_min list_mode
    list_negative_dot_product list_negative_inner_product list_pack list_position list_prepend
    list_product list_reduce list_resize list_reverse list_reverse_sort list_select list_sem
    list_skewness list_slice list_sort list_stddev_pop list_stddev_samp list_string_agg list_sum
    list_transform list_unique list_value list_var_pop list_var_samp list_where list_zip ln log
    log10 log2 lower lpad ltrim make_date make_time make_timestamp make_timestamp_ms
    make_timestamp_ns make_timestamptz map map_concat map_contains map_contains_entry
    map_contains_value map_entries map_extract map_extract_value map_from_entries map_keys
    map_values md5 md5_number md5_number_lower md5_number_upper microsecond millennium
    millisecond minute mismatches mod month monthname multiply nanosecond nextafter
    nfc_normalize normalized_interval not_ilike_escape not_like_escape nullif octet_length ord
    overlay parse_dirname parse_dirpath parse_filename parse_formatted_bytes parse_path
    path_join pg_size_pretty pg_typeof pi position pow power prefix printf quarter radians range
    reduce regexp_escape regexp_extract regexp_extract_all regexp_full_match regexp_matches
    regexp_replace regexp_split_to_array remap_struct repeat replace replace_type reverse right
    right_grapheme round round_even roundbankers row row_to_json rpad rtrim second set_bit sha1
    sha256 sign signbit sin sinh split split_part sqrt st_asbinary st_asgeojson st_astext
    st_aswkb st_aswkt st_crs st_geomfromgeojson st_geomfromwkb st_intersects_extent st_setcrs
    starts_with str_split str_split_regex strftime string_split string_split_regex
    string_to_array strip_accents strlen strpos strptime struct_concat struct_contains
    struct_extract struct_extract_at struct_has struct_indexof struct_insert struct_keys
    struct_pack struct_position struct_update struct_values substr substring substring_grapheme
    subtract suffix switch tan tanh time_bucket timetz_byte_comparable timezone timezone_hour
    timezone_minute to_aggregate_state to_base to_base64 to_binary to_centuries to_days
    to_decades to_hex to_hours to_json to_microseconds to_millennia to_milliseconds to_minutes
    to_months to_quarters to_seconds to_timestamp to_weeks to_years translate trim trunc
    try_strptime typeof ucase unbin unhex unicode union_extract union_tag union_value
    unpivot_list upper url_decode url_encode uuid_extract_timestamp uuid_extract_version
    variant_array_length variant_bytes_to_variant variant_comparator variant_contains
    variant_exists variant_extract variant_extract_string variant_keys variant_normalize
    variant_to_parquet_variant variant_type variant_typeof vertex_extract week weekday
    weekofyear xor year yearweek | || ~ ~~ ~~* ~~~
"""
#: Scalars whose name is not one word.
_SCALAR_PHRASES = ("is distinct from", "is not distinct from")
#: Every language has its function of each of these families; all are allowed.
_SCALAR_FAMILIES = ("collate_", "icu_collate_")
_SETS = "generate_subscripts regexp_split_to_table unnest"
_WINDOWS = """
    cume_dist dense_rank fill first_value lag last_value lead nth_value ntile percent_rank rank
    rank_dense row_number
"""
_AGGREGATES = """
    any_value arbitrary arg_max arg_max_null arg_max_nulls_last arg_min
    arg_min_null arg_min_nulls_last argmax argmin array_agg avg bit_and bit_or bit_xor
    bool_and bool_or corr count count_if count_star countif covar_pop covar_samp
    decimal_average entropy favg first fsum geomean geometric_mean group_concat histogram
    histogram_exact json_group_array json_group_object json_group_structure kahan_sum kurtosis
    kurtosis_pop last list listagg lttb mad max max_by mean median min min_by mode
    percentile_cont percentile_disc product quantile quantile_cont quantile_disc regr_avgx
    regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy sem
    skewness stddev stddev_pop stddev_samp string_agg sum sum_no_overflow sumkahan var_pop
    var_samp variance variant_group_array wavg weighted_avg
"""
#: Functions whose values may be larger than their arguments, or that need more time or memory than
#: proportional to them.
_GROWING = {
    Growth.FREE: """
    aggregate apply array_aggr array_aggregate array_apply array_cross_product array_filter
    array_reduce array_resize array_select array_to_string array_to_string_comma_default
    array_transform array_where bar bitstring cast_to_type damerau_levenshtein editdist3
    enum_range enum_range_boundary equi_width_bins filter format from_json from_json_strict
    generate_series generate_subscripts jaro_similarity jaro_winkler_similarity json_pretty
    json_transform json_transform_strict levenshtein list_aggr list_aggregate list_apply
    list_filter list_reduce list_resize list_select list_string_agg list_transform list_where
    lpad printf range reduce regexp_replace remap_struct repeat replace rpad strftime strptime
    to_aggregate_state to_base translate try_strptime unpivot_list
    """,
    Growth.SUM: """
    array_append array_cat array_concat array_prepend array_push_back array_push_front
    array_value array_zip concat concat_ws json_array json_deep_merge json_insert
    json_merge_patch json_object json_replace json_set list_append list_cat list_concat
    list_pack list_prepend list_value list_zip map map_concat map_from_entries overlay path_join
    row struct_concat struct_insert struct_pack struct_update union_value ||
    """,
    Growth.ROWS: """
    array_agg bitstring_agg group_concat histogram histogram_exact json_group_array
    json_group_object json_group_structure list listagg string_agg variant_group_array
    """,
}
#: Aggregates whose value shows in which order they were given the rows, or those that they find
#: equal. As window functions do, whose rows need not be ordered by what follows OVER.
_ORDERED = """
    any_value arbitrary arg_max arg_max_null arg_max_nulls_last arg_min arg_min_null
    arg_min_nulls_last argmax argmin array_agg first group_concat json_group_array
    json_group_object json_group_structure last list listagg lttb max_by min_by mode string_agg
    variant_group_array
"""
SHOWING_ORDER = frozenset(_ORDERED.split())
_GROWTH = {name: growth for growth, names in _GROWING.items() for name in names.split()}
#: Other names of the same aggregates.
_SYNONYMS = {
    "arbitrary": "first",
    "argmax": "arg_max",
    "argmin": "arg_min",
    "array_agg": "list",
    "countif": "count_if",
    "fsum": "kahan_sum",
    "geometric_mean": "geomean",
    "group_concat": "string_agg",
    "listagg": "string_agg",
    "max_by": "arg_max",
    "mean": "avg",
    "min_by": "arg_min",
    "percentile_cont": "quantile_cont",
    "percentile_disc": "quantile_disc",
    "quantile": "quantile_disc",
    "stddev": "stddev_samp",
    "sumkahan": "kahan_sum",
    "variance": "var_samp",
    "wavg": "weighted_avg",
}
#: Aggregates whose value over no rows is not NULL.
_OF_NOTHING = {
    "approx_count": "0",
    "approx_count_distinct": "0",
    "count": "0",
    "count_star": "0",
    "entropy": "0.0",
    "regr_count": "0",
}
#: Aggregates that are refused.
_REFUSED_AGGREGATES = {
    # Calls of their right form are replaced before functions are checked
    # (`millpond.cql.print.approximations`).
    Refusal.FORM: "approx_count approx_count_distinct approx_quantile approx_top_k",
    Refusal.ORDER: "reservoir_quantile",
    Refusal.INSIDE: "variant_group_object combine_aggr",
}
#: Other functions that are refused.
_REFUSED = {
    Refusal.CLOCK: """
    ago current_date current_localtime current_localtimestamp current_time current_timestamp
    get_current_time get_current_timestamp localtime localtimestamp now today
    transaction_timestamp
    """,
    Refusal.CHANCE: """
    currval gen_random_uuid nextval random uuid uuidv4 uuidv7
    """,
    Refusal.SESSION: """
    col_description current_catalog current_connection_id current_database current_query
    current_query_id current_role current_schema current_schemas current_setting
    current_transaction_id current_user format_pg_type format_type getvariable
    has_any_column_privilege has_column_privilege has_database_privilege
    has_foreign_data_wrapper_privilege has_function_privilege has_language_privilege
    has_schema_privilege has_sequence_privilege has_server_privilege has_table_privilege
    has_tablespace_privilege in_search_path inet_client_addr inet_client_port inet_server_addr
    inet_server_port map_to_pg_oid obj_description pg_collation_is_visible pg_conf_load_time
    pg_conversion_is_visible pg_function_is_visible pg_get_constraintdef pg_get_expr
    pg_get_viewdef pg_has_role pg_is_other_temp_schema pg_my_temp_schema pg_opclass_is_visible
    pg_operator_is_visible pg_opfamily_is_visible pg_postmaster_start_time pg_table_is_visible
    pg_ts_config_is_visible pg_ts_dict_is_visible pg_ts_parser_is_visible
    pg_ts_template_is_visible pg_type_is_visible session_user shobj_description txid_current
    user version
    """,
    Refusal.EFFECT: """
    assert_true error pg_sleep setseed setval sleep_ms write_log
    """,
    Refusal.INSIDE: """
    add_parquet_key can_cast_implicitly combine create_sort_key finalize get_type
    hive_partition_component index_key invoke json_copy_strftime_if_date
    json_copy_strftime_if_timestamp json_deserialize_sql json_serialize_plan json_serialize_sql
    make_type parse_duckdb_log_message stats vector_type
    """,
    Refusal.OUTSIDE: """
    arrow_scan arrow_scan_dumb checkpoint collations copy_database create_external_resource
    database_list database_size deregister_external_resource destroy_external_resource
    disable_checkpoint_on_shutdown disable_logging disable_object_cache disable_optimizer
    disable_print_progress_bar disable_profile disable_profiling disable_progress_bar
    disable_verification disable_verify_parallelism duckdb_approx_database_count
    duckdb_available_metrics duckdb_columns duckdb_connection_count duckdb_constraints
    duckdb_coordinate_systems duckdb_databases duckdb_dependencies duckdb_dialects
    duckdb_eviction_queues duckdb_extension_repositories duckdb_extensions
    duckdb_external_file_cache duckdb_external_resource_types duckdb_external_resources
    duckdb_functions duckdb_grammar_extensions duckdb_indexes duckdb_keywords
    duckdb_log_contexts duckdb_logs duckdb_logs_parsed duckdb_memory duckdb_optimizers
    duckdb_prepared_statements duckdb_profiling_settings duckdb_schemas
    duckdb_secret_type_parameters duckdb_secret_types duckdb_secrets duckdb_sequences
    duckdb_settings duckdb_table_sample duckdb_tables duckdb_temporary_files duckdb_triggers
    duckdb_types duckdb_variables duckdb_views enable_checkpoint_on_shutdown enable_logging
    enable_object_cache enable_optimizer enable_print_progress_bar enable_profile
    enable_profiling enable_progress_bar enable_verification extension_versions force_checkpoint
    functions get_block_size glob histogram_values icu_calendar_names import_database json_each
    json_execute_serialized_sql json_tree metadata_info pandas_scan parquet_bloom_probe
    parquet_file_metadata parquet_full_metadata parquet_kv_metadata parquet_metadata
    parquet_scan parquet_schema pg_timezone_names platform pragma_collations
    pragma_database_size pragma_metadata_info pragma_platform pragma_show pragma_storage_info
    pragma_table_info pragma_user_agent pragma_version python_arrow_scan python_map_function
    query query_table read_blob read_csv read_csv_auto read_duckdb read_json read_json_auto
    read_json_objects read_json_objects_auto read_ndjson read_ndjson_auto read_ndjson_objects
    read_parquet read_single_csv_file read_single_json_file read_single_parquet_file read_text
    register_external_resource register_external_resource_type repeat_row seq_scan show
    show_databases show_tables show_tables_expanded sniff_csv storage_info summary table_info
    test_all_types test_vector_types truncate_duckdb_logs user_agent verify_parallelism
    which_secret
    """,
}
#: The beginning of the names of functions internal to DuckDB; `__between` and `__cast`, which
#: DuckDB's parser writes, are allowed scalars.
_INSIDE_FAMILY = "__internal_"
#: Words DuckDB reads as calls although they are written without parentheses.
_WORDS = """
    current_catalog current_date current_role current_schema current_time current_timestamp
    current_user localtime localtimestamp session_user user
"""


def _growth_of(name: str) -> Growth:
    return _GROWTH.get(name, Growth.NONE)


def _list_all() -> Iterable[Function]:
    for name in (*_SCALARS.split(), *_SCALAR_PHRASES):
        yield Function(name, Kind.SCALAR, growth=_growth_of(name))
    for name in _SETS.split():
        yield Function(name, Kind.SET, growth=_growth_of(name))
    for name in _WINDOWS.split():
        yield Function(name, Kind.WINDOW)
    for name in _AGGREGATES.split():
        of_nothing = _OF_NOTHING.get(name, "NULL")
        synonym_of = _SYNONYMS.get(name)
        growth = _growth_of(name)
        yield Function(
            name, Kind.AGGREGATE, synonym_of=synonym_of, of_nothing=of_nothing, growth=growth
        )
    for refusal, names in _REFUSED_AGGREGATES.items():
        for name in names.split():
            of_nothing = _OF_NOTHING.get(name, "NULL")
            yield Function(name, Kind.AGGREGATE, refusal, of_nothing=of_nothing)
    words = _WORDS.split()
    for refusal, names in _REFUSED.items():
        for name in names.split():
            yield Function(name, Kind.SCALAR, refusal, is_word=name in words)
    # With one argument its length is that of all values DuckDB keeps, those of no window too.
    yield Function(
        "bitstring_agg",
        Kind.AGGREGATE,
        Refusal.STATISTICS,
        allowed_from=3,
        growth=_growth_of("bitstring_agg"),
    )
    # With one argument it is the time since then.
    yield Function("age", Kind.SCALAR, Refusal.CLOCK, allowed_from=2)


#: Every function that was examined, by its name.
FUNCTIONS = {function.name: function for function in _list_all()}
#: The names of the functions that a query may call.
ALLOWED = tuple(name for name, f in FUNCTIONS.items() if f.refusal is None or f.allowed_from)


def find_function(name: str) -> Function | None:
    """Find the function of a name in any case; None if nobody has examined it.

    >>> find_function("Variance").synonym_of, find_function("now").refusal.name
    ('var_samp', 'CLOCK')
    """
    key = name.lower()
    found = FUNCTIONS.get(key)
    if found is None and key.startswith(_SCALAR_FAMILIES):
        return Function(key, Kind.SCALAR)
    if found is None and key.startswith(_INSIDE_FAMILY):
        return Function(key, Kind.SCALAR, Refusal.INSIDE)
    return found


def shows_order(sql: str) -> bool:
    """Whether a query's answer may show in which order its rows are read.

    >>> shows_order("SELECT max(a) FROM t"), shows_order("SELECT Last(a) FROM t")
    (False, True)
    >>> shows_order("SELECT lag(a) OVER w FROM t WINDOW w AS (ORDER BY b)")
    True
    """
    if re.search(r"\bover\b", sql, re.IGNORECASE):
        return True
    called = {name.lower() for name in re.findall(r'(\w+)"?\s*\(', sql)}
    return not called.isdisjoint(SHOWING_ORDER)
