//! The Python face of the crate: converts, releases the GIL, maps errors. One file per subject.

use pyo3::prelude::*;

mod bpe;
mod digest;
mod encoder;
mod gather;
mod member;
mod plan;
mod reply;
mod rng;
mod texts;

#[pymodule(gil_used = false)]
fn _native(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("version", env!("CARGO_PKG_VERSION"))?;
    digest::register(m)?;
    plan::register(m)?;
    reply::register(m)?;
    rng::register(m)?;
    bpe::register(m)?;
    encoder::register(m)?;
    gather::register(m)?;
    texts::register(m)?;
    Ok(())
}
