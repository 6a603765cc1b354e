// The same hook as a webhook: what `cargo xtask bench hook` compares with. The standard library alone.
module metahook/tests/bench/webhook

go 1.26
