//! Networks and API servers that lie, tear, delay and swallow.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use acceptance::api::{CONFIG_MAP, EVENT};
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, condition, config_map, has_condition, is_true, text};
use acceptance::proxy::{Fate, Moment, Proxy};
use acceptance::wait::{PATIENCE, until};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use http::{Method, Request};
use hyper::body::Incoming;
use serde_json::{Value, json};

use crate::attacks::measure::{health_p99, memory_at_most, metric, with_metrics, with_probes};
use crate::attacks::{form, is_long};

/// A `ConfigMap` for each parent, which the finalize hook has deleted.
fn greeted(asked: &Asked) -> Value {
    let name = text(&asked.body, "/parent/metadata/name");
    let who = &asked.body["parent"]["spec"]["who"];
    if asked.path == "/finalize" {
        let is_left = asked.body["children"]["ConfigMap.v1"].as_object().is_some_and(|all| !all.is_empty());
        return json!({ "children": [], "finalized": !is_left });
    }
    json!({ "children": [config_map(name, json!({}), json!({ "who": who }))], "status": { "who": who } })
}

/// A controller with a finalize hook, whose server reaches the API server by a proxy.
async fn hosted(test: &mut Fixture, webhook: &Webhook) -> Result<Proxy> {
    test.define_kind().await?;
    let proxy = Proxy::start(test.plane().client().await?, test.plane().scratch()).await?;
    test.server().reach_by(proxy.kubeconfig());
    let controller = test.controller().making(&CONFIG_MAP, "InPlace");
    let hooks = ["/sync", "/finalize"].map(|path| Hook::webhook(&webhook.url(path)));
    let [sync, finalize] = hooks;
    test.host(controller.synced_by(sync).finalized_by(finalize)).await?;
    Ok(proxy)
}

async fn ready(test: &Fixture) -> Result<()> {
    test.until_controller("ready", |cc| is_true(cc, "Ready")).await.map(drop)
}

/// `SplitMix64`: the same numbers in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

const SEED: u64 = 15;

/// One request in five has a bad fate; they are counted.
fn storm(bad: Arc<AtomicU32>) -> impl FnMut(&Request<Incoming>) -> Fate + Send {
    let mut random = Random(SEED);
    move |request| {
        let fate = match random.below(40) {
            0 => Fate::Refuse(409, None),
            1 => Fate::Refuse(410, None),
            2 => Fate::Refuse(429, Some(1)),
            3 => Fate::Refuse(500, None),
            4 => Fate::Reset(Moment::Before),
            5 if *request.method() != Method::GET => Fate::Reset(Moment::After),
            6 => Fate::Tear(usize::try_from(random.below(2000)).unwrap_or_default()),
            7 => Fate::Delay(Duration::from_millis(random.below(500))),
            _ => return Fate::Pass,
        };
        bad.fetch_add(1, Ordering::Relaxed);
        fate
    }
}

/// The parents that there have to be, by name, with their spec; and how many there ever were.
#[derive(Default)]
struct Population {
    alive: BTreeMap<String, String>,
    born: u32,
}

impl Population {
    /// Makes all of the first at once.
    async fn settle(&mut self, test: &Fixture, count: usize) -> Result<()> {
        let all: Vec<_> = (0..count).map(|nth| format!("first-{nth}")).collect();
        for some in all.chunks(20) {
            let parents = test.parents();
            let made = some.iter().map(|name| parents.create(test.parent(name).greeting("you").json()));
            self.born += u32::try_from(try_join_all(made).await?.len())?;
        }
        self.alive.extend(all.into_iter().map(|name| (name, "you".to_owned())));
        Ok(())
    }

    /// One of them comes, changes or goes.
    async fn live(&mut self, test: &Fixture, random: &mut Random, most: usize) -> Result<()> {
        let nth = usize::try_from(random.below(self.alive.len().max(1) as u64))?;
        let some = self.alive.keys().nth(nth).cloned();
        let who = random.below(1000).to_string();
        match (some, random.below(4)) {
            (Some(name), 0) => {
                test.parents().delete(&name).await?;
                self.alive.remove(&name);
            }
            (Some(name), 1) => {
                test.parents().merge(&name, &json!({ "spec": { "who": who } })).await?;
                self.alive.insert(name, who);
            }
            _ if self.alive.len() < most => {
                self.born += 1;
                let name = format!("p{}", self.born);
                test.parents().create(test.parent(&name).greeting(&who).json()).await?;
                self.alive.insert(name, who);
            }
            _ => {}
        }
        Ok(())
    }

    /// Waits until each parent has its status and its `ConfigMap`, and nothing else is there.
    async fn until_served(&self, test: &Fixture) -> Result<()> {
        let is_alive = |object: &Value, who: &str| {
            let alive = self.alive.get(text(object, "/metadata/name"));
            alive.is_some_and(|alive| *alive == text(object, who))
        };
        let served = |all: &[Value]| {
            all.len() == self.alive.len() && all.iter().all(|one| is_alive(one, "/status/who"))
        };
        test.parents().until_all("those that are left, served", served).await?;
        let children = |all: &[Value]| {
            let mut ours = all.iter().filter(|map| is_child(map));
            ours.clone().count() == self.alive.len() && ours.all(|one| is_alive(one, "/data/who"))
        };
        test.config_maps().until_all("one for each that is left", children).await.map(drop)
    }
}

fn is_child(object: &Value) -> bool {
    object["metadata"].get("ownerReferences").is_some()
}

pub(crate) async fn bad_weather_loses_doubles_and_leaves_nothing(test: &mut Fixture) -> Result<()> {
    let webhook = Webhook::serve(|asked| greeted(asked).into()).await?;
    let proxy = hosted(test, &webhook).await?;
    test.serve()?;
    ready(test).await?;
    let bad = Arc::new(AtomicU32::new(0));
    proxy.count(|write| write.method == Method::POST && write.path.ends_with("/configmaps"));
    proxy.meddle(storm(Arc::clone(&bad)));
    let mut random = Random(SEED + 1);
    let mut population = Population::default();
    let most = form(40, 500);
    population.settle(test, most).await?;
    let end = Instant::now() + form(Duration::from_secs(3), Duration::from_mins(10));
    let least = form(30, 2000);
    while Instant::now() < end || bad.load(Ordering::Relaxed) < least {
        population.live(test, &mut random, most).await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    proxy.meddle(|_| Fate::Pass);
    let calm = Instant::now();
    population.until_served(test).await?;
    let made = proxy.writes().iter().filter(|write| write.status.is_some_and(|it| it == 201)).count();
    let per_parent = f64::from(u32::try_from(made)?) / f64::from(population.born);
    let bad = f64::from(bad.load(Ordering::Relaxed));
    test.at_least("requests with a bad fate", bad, "", least.into())?;
    test.at_most("ConfigMaps made per parent", per_parent, "", 1.0)?;
    test.at_most("converged after the storm", calm.elapsed().as_secs_f64(), "s", 60.0)?;
    for name in population.alive.keys() {
        test.parents().delete(name).await?;
    }
    test.parents().until_all("none", <[Value]>::is_empty).await?;
    test.config_maps().until_all("none", |all| !all.iter().any(is_child)).await.map(drop)
}

/// The list of parents, then their watch is swallowed.
pub(crate) async fn lists_and_watches_that_are_swallowed_come_again(test: &mut Fixture) -> Result<()> {
    let webhook = Webhook::serve(|asked| greeted(asked).into()).await?;
    let proxy = hosted(test, &webhook).await?;
    test.server().flag(form("--api-read-timeout=1s", "--api-read-timeout=1m"));
    // Servers that start also list the kinds of other tests' records.
    let parents = format!("/apis/{}/{}", test.kind().api_version(), test.kind().plural);
    let (mut lists, mut watches) = (0, 0);
    proxy.meddle(move |request| {
        let is_list = *request.method() == Method::GET && request.uri().path() == parents;
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let times = if is_watch { &mut watches } else { &mut lists };
        *times += u32::from(is_list);
        if is_list && *times <= form(2, 1) { Fate::Swallow } else { Fate::Pass }
    });
    test.create(test.parent("listed").greeting("you")).await?;
    let start = Instant::now();
    test.serve()?;
    let is_told = |cc: &Value| has_condition(cc, "Ready", "False", "NotListed");
    test.until_controller("not listed", is_told).await?;
    ready(test).await?;
    test.create(test.parent("watched").greeting("you")).await?;
    let served = |all: &[Value]| all.len() == 2 && all.iter().all(|parent| parent["status"]["who"] == "you");
    let parents = test.parents();
    until("both are served", PATIENCE * 3, async || {
        let all = parents.list().await?;
        Ok(if served(&all) { Ok(()) } else { Err(format!("{all:?}")) })
    })
    .await?;
    test.at_most("served behind both", start.elapsed().as_secs_f64(), "s", form(15.0, 180.0))
}

/// The API server's lists of children never end.
pub(crate) async fn an_endless_answer_is_refused_at_its_bound(test: &mut Fixture) -> Result<()> {
    let webhook = Webhook::serve(|asked| greeted(asked).into()).await?;
    let proxy = hosted(test, &webhook).await?;
    let endless = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&endless);
    proxy.meddle(move |request| {
        let is_of_children =
            *request.method() == Method::GET && request.uri().path().ends_with("/configmaps");
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        if !is_of_children || is_watch {
            return Fate::Pass;
        }
        counted.fetch_add(1, Ordering::Relaxed);
        Fate::Endless
    });
    test.create(test.parent("p").greeting("you")).await?;
    test.serve()?;
    let is_refused = |cc: &Value| {
        let ready = condition(cc, "Ready").map_or("", |ready| text(ready, "/message"));
        has_condition(cc, "Ready", "False", "NotListed") && ready.contains("configmaps has more than 32Mi")
    };
    test.until_controller("not listed", is_refused).await?;
    let enough = form(3, 30);
    until("lists without end", PATIENCE * 3, async || {
        let lists = endless.load(Ordering::Relaxed);
        Ok(if lists >= enough { Ok(()) } else { Err(format!("{lists} of {enough}")) })
    })
    .await?;
    memory_at_most(test, "the server's memory", 200.0)?;
    proxy.meddle(|_| Fate::Pass);
    ready(test).await?;
    test.config_maps().until("p", "made", |_| true).await.map(drop)
}

/// Clients that connect and say nothing.
pub(crate) async fn silent_connections_hold_up_no_probe(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let probes = with_probes(test)?;
    let metrics = with_metrics(test)?;
    test.serve()?;
    let log = |log: &str| log.contains("serving");
    test.server().until_log("serving", log).await?;
    let mut silent = Vec::new();
    for nth in 0..1000 {
        silent.push(TcpStream::connect(if nth % 2 == 0 { probes } else { metrics })?);
    }
    let wait = async {
        tokio::time::sleep(form(Duration::from_secs(2), Duration::from_mins(1))).await;
        Ok(())
    };
    let ((), p99) = health_p99(probes, wait).await?;
    metric(metrics, "metahook_module_compilations_total")?;
    let pid = test.server().pid()?;
    let held = u32::try_from(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count())?;
    test.at_most("open files of the server", held.into(), "", 250.0)?;
    test.at_most("p99 of /healthz", p99.as_secs_f64() * 1e3, "ms", 100.0)
}

/// The API server wants to be left alone for 30 years.
pub(crate) async fn a_retry_after_of_years_is_not_believed(test: &mut Fixture) -> Result<()> {
    let webhook = Webhook::serve(|asked| greeted(asked).into()).await?;
    let proxy = hosted(test, &webhook).await?;
    let mut refused = false;
    proxy.meddle(move |request| {
        let creates = *request.method() == Method::POST && request.uri().path().ends_with("/configmaps");
        if creates && !std::mem::replace(&mut refused, true) {
            return Fate::Refuse(429, Some(1_000_000_000));
        }
        Fate::Pass
    });
    test.serve()?;
    let start = Instant::now();
    test.create(test.parent("p").greeting("you")).await?;
    let log = test.server().until_log("postponed", |log| log.contains("postponed")).await?;
    let line = log.lines().find(|line| line.contains("postponed")).unwrap_or_default();
    let line: Value = serde_json::from_str(line)?;
    let again = text(&line, "/again").trim_end_matches('s').parse()?;
    test.at_most("Retry-After that is believed", again, "s", 120.0)?;
    if is_long() {
        tokio::time::sleep(Duration::from_secs(100)).await;
    } else {
        // A change of the parent does not wait.
        test.parents().merge("p", &json!({ "spec": { "who": "all" } })).await?;
    }
    test.config_maps().until("p", "made", |_| true).await?;
    test.at_most("made after", start.elapsed().as_secs_f64(), "s", form(10.0, 130.0))?;
    ensure!(!webhook.asked().is_empty());
    Ok(())
}

/// A webhook sends the server to another host, whose answers the webhook's author must not see.
pub(crate) async fn the_answers_of_another_host_are_not_shown(test: &mut Fixture) -> Result<()> {
    const SECRET: &str = "the words of the other host";
    let other = Webhook::answering(Answer::text(SECRET)).await?;
    let elsewhere = format!("http://localhost:{}/", other.address().port());
    let webhook = Webhook::answering(Answer::status(307).with_header("location", &elsewhere)).await?;
    test.define_kind().await?;
    let sync = Hook::webhook(&webhook.url("/sync"));
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(sync)).await?;
    test.serve()?;
    create_failing(test, "default", "it redirects to another host, localhost").await?;
    let asked = f64::from(u32::try_from(other.count())?);
    test.at_most("requests to the other host by default", asked, "", 0.0)?;

    test.server().stop().await?;
    test.server().flag("--webhook-redirects=any");
    test.server().start()?;
    let answers = [
        ("text", Answer::text(SECRET), "the answer that its redirect led to is no JSON object"),
        (
            "list",
            Answer::text(format!("[\"{SECRET}\"]")),
            "the answer that its redirect led to is no JSON object",
        ),
        ("error", Answer::text(SECRET).with_status(500), "unsupported status code: 500"),
    ];
    for (parent, answer, why) in answers {
        other.answer(answer);
        create_failing(test, parent, why).await?;
    }
    ensure!(other.count() > 0, "the server follows no redirect");
    test.server().until_log("the last failure", |log| log.contains("unsupported status code: 500")).await?;
    let mut shown = vec![std::fs::read_to_string(test.server().log())?];
    for objects in [test.within(&EVENT), test.parents(), test.controllers()] {
        shown.push(serde_json::to_string(&objects.list().await?)?);
    }
    let quotes: usize = shown.iter().map(|text| text.matches(SECRET).count()).sum();
    test.at_most("quotes of the other host", f64::from(u32::try_from(quotes)?), "", 0.0)
}

/// Creates a parent, and waits until its hook fails for this reason.
async fn create_failing(test: &mut Fixture, parent: &str, why: &str) -> Result<()> {
    test.create(test.parent(parent)).await?;
    let says = |event: &Value| text(event, "/message").contains(why);
    test.until_event(parent, "SyncError", says).await.map(drop).with_context(|| why.to_owned())
}
