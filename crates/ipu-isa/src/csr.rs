//! Names of the control and status registers.
//!
//! Lower registers (number below 256) are reached by `get` and `put` from the M file, upper ones
//! by `uget` and `uput` from the A file with the number minus 256. One number can name two
//! registers: one of the supervisor and one of the workers.

use crate::form::{Mode, ModeSet};

/// One register.
#[derive(Debug, Clone, Copy)]
pub struct Csr {
    pub name: &'static str,
    pub number: u16,
    pub mode: ModeSet,
}

impl Csr {
    /// Whether it is reached from the A file.
    pub fn is_upper(&self) -> bool {
        self.number >= 256
    }

    /// The eight bits that an instruction holds.
    pub fn field(&self) -> u8 {
        (self.number & 0xff) as u8
    }
}

const fn csr(name: &'static str, number: u16, mode: ModeSet) -> Csr {
    Csr { name, number, mode }
}

use ModeSet::{Both, Supervisor, Worker};

/// Named registers except the weight registers `CWEI_c_p`, in order of mode and number.
pub static CSRS: &[Csr] = &[
    csr("PC", 0, Both),
    csr("SSR", 1, Supervisor),
    csr("CR", 2, Supervisor),
    csr("TILE_ID", 3, Supervisor),
    csr("FP_ICTL", 32, Supervisor),
    csr("WORKER0_BASE", 33, Supervisor),
    csr("WORKER1_BASE", 34, Supervisor),
    csr("WORKER2_BASE", 35, Supervisor),
    csr("WORKER3_BASE", 36, Supervisor),
    csr("WORKER4_BASE", 37, Supervisor),
    csr("WORKER5_BASE", 38, Supervisor),
    csr("FP_INFMT", 49, Supervisor),
    csr("FP_ISCL", 51, Supervisor),
    csr("CCCSLOAD", 80, Supervisor),
    csr("SCOUNT_L", 96, Supervisor),
    csr("SCOUNT_U", 97, Supervisor),
    csr("DBG_DATA", 112, Both),
    csr("DBG_BRK_ID", 113, Supervisor),
    csr("CTXT_STS", 114, Supervisor),
    csr("INCOMING_MUX", 160, Supervisor),
    csr("INCOMING_MUXPAIR", 161, Supervisor),
    csr("INCOMING_DELTA", 162, Supervisor),
    csr("INCOMING_FORMAT", 163, Supervisor),
    csr("INCOMING_BASE", 164, Supervisor),
    csr("INCOMING_SINIT", 165, Supervisor),
    csr("INCOMING_DCOUNT", 166, Supervisor),
    csr("OUTGOING_BASE", 167, Supervisor),
    csr("OUTGOING_DELTA", 168, Supervisor),
    csr("EXCHANGE_CTL", 169, Supervisor),
    csr("ANS_DCOUNT", 170, Supervisor),
    csr("EXCHANGE_ADJ", 171, Supervisor),
    csr("WSR", 1, Worker),
    csr("VERTEX_BASE", 2, Worker),
    csr("WORKER_BASE", 3, Worker),
    csr("REPEAT_COUNT", 4, Worker),
    csr("REPEAT_FIRST", 5, Worker),
    csr("REPEAT_END", 6, Worker),
    csr("COUNT_L", 96, Worker),
    csr("COUNT_U", 97, Worker),
    csr("FP_STS", 256, Worker),
    csr("FP_CLR", 257, Worker),
    csr("FP_CTL", 258, Worker),
    csr("PRNG_0_0", 259, Worker),
    csr("PRNG_0_1", 260, Worker),
    csr("PRNG_1_0", 261, Worker),
    csr("PRNG_1_1", 262, Worker),
    csr("PRNG_SEED", 263, Worker),
    csr("TAS", 264, Worker),
    csr("FP_NFMT", 265, Worker),
    csr("FP_SCL", 266, Worker),
];

/// The register of this name, without `$`. `CWEI_c_p` is channel c, phase p: number 4c + p.
pub fn by_name(name: &str) -> Option<Csr> {
    if let Some(rest) = name.strip_prefix("CWEI_") {
        let (channel, phase) = rest.split_once('_')?;
        let (channel, phase) = (channel.parse::<u16>().ok()?, phase.parse::<u16>().ok()?);
        let fits = channel < 16 && phase < 4;
        return fits.then_some(Csr {
            name: "CWEI",
            number: 4 * channel + phase,
            mode: Supervisor,
        });
    }
    CSRS.iter().find(|csr| csr.name == name).copied()
}

/// The register with this number in `mode`, weight registers left out.
pub fn by_number(number: u16, mode: Mode) -> Option<Csr> {
    CSRS.iter()
        .find(|csr| csr.number == number && csr.mode.contains(mode))
        .copied()
}
