//! Attacks by modules: what compiling them costs others.

use std::time::Instant;

use acceptance::api::POD;
use acceptance::fixture::{Fixture, guest};
use acceptance::objects::has_condition;
use anyhow::Result;

use crate::attacks::form;
use crate::wasm;

/// Seconds of processor time after which a module is refused.
const COMPILE_TIME: f64 = 1.0;

/// Seconds on the clock after which a module is refused, with the time that compiling a good module takes.
const COMPILE_WAIT: f64 = 3.0;

/// One compiler for all; each module that never compiles has it once before a good one that comes later.
pub(crate) async fn modules_that_never_compile_delay_others_by_one_turn_each(
    test: &mut Fixture,
) -> Result<()> {
    let hostile = form(2_u8, 10);
    test.define_kind().await?;
    test.server().flag("--module-compilations=1");
    test.server().flag(&format!("--module-compile-timeout={COMPILE_TIME}s"));
    test.serve()?;
    let named = |number: u8| format!("slow-{number}");
    for number in 0..hostile {
        test.store(&named(number), &wasm::slow_to_compile(number)?).await?;
        let name = format!("{}-{}", test.name(), named(number));
        let controller = test.controller().renamed(&name).of_parents_with("row", &named(number));
        let hook = test.hook(&named(number));
        test.host(controller.synced_by(hook)).await?;
    }
    test.store("good", &guest("hello")?).await?;
    let start = Instant::now();
    let good = test.controller().of_parents_with("row", "good").making(&POD, "Recreate");
    test.host(good.synced_by(test.hook("good"))).await?;
    test.create(test.parent("good").labelled("row", "good")).await?;
    test.parents().until("good", "its Pod counted", |parent| parent["status"]["pods"] == 1).await?;
    let took = start.elapsed().as_secs_f64();
    let bound = COMPILE_WAIT * f64::from(hostile + 1);
    test.at_most("a neighbour's first Pod came after", took, "s", bound)?;
    for number in 0..hostile {
        let name = format!("{}-{}", test.name(), named(number));
        let refused = |cc: &_| has_condition(cc, "ModulesLoaded", "False", "ModuleInvalid");
        test.controllers().until(&name, "its module refused", refused).await?;
    }
    Ok(())
}
