//! The Rust core of Headrace. Modules here know no Python; `py` binds them.

mod py;
