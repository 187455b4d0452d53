//! Stage `time`: the package to simulated cycles, without data.
//!
//! Input: `package`. Output: `timing` (JSON): exactly what `run` counts.

use ipu_sim::Session;
use ipub_engine::{StageFailure, StageInputs, StageOutputs};

use crate::codec::to_json;
use crate::simulate::{Counts, read_package, refuse};
use crate::stage::Stage;

pub(crate) const STAGE: Stage = Stage::new("time", run);

fn run(inputs: &StageInputs<'_>) -> Result<StageOutputs, StageFailure> {
    let package = read_package(&inputs.input("package")?)?;
    let mut session = Session::without_data(&package).map_err(refuse)?;
    session.initialize(&mut |_| None).map_err(refuse)?;
    let result = session.invoke(&mut |_| None).map_err(refuse)?;
    let counts = Counts::new(&result.parts, &package);
    Ok(StageOutputs::new()
        .with("timing", to_json("timing", &counts)?)
        .note("cycles", counts.cycles))
}
