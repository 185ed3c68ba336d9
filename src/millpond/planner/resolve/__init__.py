"""Name resolution: find what each table, alias and column means; push predicates down."""
