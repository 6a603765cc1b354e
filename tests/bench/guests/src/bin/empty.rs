//! A program that does nothing: what Rust's own start and end take.

fn main() {}
