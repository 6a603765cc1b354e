//! Limits of one call of a Wasm hook: as stored, and as numbers within the server's ceilings.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::{SpecError, units};

/// Limits of one call. An absent one has the server's default; none may exceed the server's ceiling.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WasmLimits {
    /// Linear memory, for example `64Mi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Wall clock, for example `10s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Instructions; the same on every machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub instructions: Option<u64>,
    /// The answer on stdout, for example `4Mi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Log lines on stderr that are kept, for example `64Ki`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// Limits with numbers in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub memory: u64,
    pub timeout: Duration,
    pub instructions: u64,
    pub output: u64,
    pub log: u64,
}

/// The server's defaults and ceilings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitBounds {
    pub default: Limits,
    pub ceiling: Limits,
}

impl Default for LimitBounds {
    fn default() -> Self {
        Self {
            default: Limits {
                memory: 64 << 20,
                timeout: Duration::from_secs(10),
                instructions: 1_000_000_000,
                output: 4 << 20,
                log: 64 << 10,
            },
            ceiling: Limits {
                memory: 512 << 20,
                timeout: Duration::from_mins(1),
                instructions: 100_000_000_000,
                output: 32 << 20,
                log: 1 << 20,
            },
        }
    }
}

impl WasmLimits {
    pub(super) fn check(&self, field: &str, bounds: &LimitBounds) -> Result<Limits, SpecError> {
        let LimitBounds { default, ceiling } = bounds;
        let size = |name: &str, text: &Option<String>, default: u64, ceiling: u64| {
            let Some(text) = text else { return Ok(default) };
            let field = format!("{field}.{name}");
            let value = units::bytes(text).filter(|bytes| *bytes > 0).ok_or_else(|| {
                SpecError::new(&field, format!("{text:?} is no amount of bytes: write it like 64Mi"))
            })?;
            within(&field, text, value, &ceiling, &units::print_bytes(ceiling))
        };
        let timeout = match &self.timeout {
            None => default.timeout,
            Some(text) => {
                let field = format!("{field}.timeout");
                let value =
                    units::duration(text).filter(|duration| !duration.is_zero()).ok_or_else(|| {
                        SpecError::new(&field, format!("{text:?} is no duration: write it like 10s or 500ms"))
                    })?;
                within(&field, text, value, &ceiling.timeout, &format!("{}s", ceiling.timeout.as_secs_f64()))?
            }
        };
        let instructions = match self.instructions {
            None => default.instructions,
            Some(0) => {
                return Err(SpecError::new(
                    format!("{field}.instructions"),
                    "0 is too few for any hook: leave it out",
                ));
            }
            Some(number) => {
                let field = format!("{field}.instructions");
                within(
                    &field,
                    &number.to_string(),
                    number,
                    &ceiling.instructions,
                    &ceiling.instructions.to_string(),
                )?
            }
        };
        Ok(Limits {
            memory: size("memory", &self.memory, default.memory, ceiling.memory)?,
            timeout,
            instructions,
            output: size("output", &self.output, default.output, ceiling.output)?,
            log: size("log", &self.log, default.log, ceiling.log)?,
        })
    }
}

fn within<T: PartialOrd>(
    field: &str,
    text: &str,
    value: T,
    ceiling: &T,
    ceiling_text: &str,
) -> Result<T, SpecError> {
    if value > *ceiling {
        let problem = format!(
            "{text} is above this server's ceiling of {ceiling_text}: lower it, or raise the ceiling by the server's flags --hook-*-max"
        );
        return Err(SpecError::new(field, problem));
    }
    Ok(value)
}
