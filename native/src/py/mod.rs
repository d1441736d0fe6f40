//! The Python face of the crate: converts, releases the GIL, maps errors. One file per subject.

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
fn _native(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("version", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}
