//! Section 2.8 of the compatibility contract: answers of webhooks that are kept under their `ETag`.

use acceptance::api::CONFIG_MAP;
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, config_map, text};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

fn sent_tag(asked: &Asked) -> Option<&str> {
    asked.headers.get("if-none-match").map(String::as_str)
}

fn who(asked: &Asked) -> &str {
    text(&asked.body, "/parent/spec/who")
}

/// The tag is who is greeted; a request that has it gets no body.
fn tagged(asked: &Asked) -> Answer {
    let tag = format!("W/\"{}\"", who(asked));
    if sent_tag(asked) == Some(tag.as_str()) {
        return Answer::status(304);
    }
    let data = json!({ "who": who(asked) });
    let answer = json!({ "children": [config_map("child", json!({}), data)] });
    Answer::from(answer).with_header("etag", &tag)
}

pub(crate) async fn an_answer_that_the_webhook_leaves_out_is_the_one_it_gave_last(
    test: &mut Fixture,
) -> Result<()> {
    let hook = Webhook::serve(tagged).await?;
    test.define_kind().await?;
    test.serve()?;
    // Without an interval of its own, with which Metacontroller would not start it.
    let etag = json!({ "enabled": true, "cacheTimeoutSeconds": 3600 });
    let sync = Hook::webhook(&hook.url("/sync")).with("etag", etag);
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(sync)).await?;
    test.create(test.parent("a").greeting("Ada")).await?;
    let child = test.config_maps();
    let greets = |who: &'static str| move |child: &Value| child["data"]["who"] == who;
    let first = child.until("child", "made", greets("Ada")).await?;
    let asked = hook.until_asked("first", |_| true).await?;
    ensure!(sent_tag(&asked).is_none(), "{asked:?}");

    // From now on there is no other way to make the child than the kept answer.
    child.delete("child").await?;
    let made_again = |child: &Value| child["metadata"]["uid"] != first["metadata"]["uid"];
    child.until("child", "made again", |child| greets("Ada")(child) && made_again(child)).await?;
    hook.until_asked("with the tag as it came", |asked| sent_tag(asked) == Some("W/\"Ada\"")).await?;

    // Another answer takes its place.
    test.parents().merge("a", &json!({ "spec": { "who": "Grace" } })).await?;
    child.until("child", "greets Grace", greets("Grace")).await?;
    hook.until_asked("with the new tag", |asked| sent_tag(asked) == Some("W/\"Grace\"")).await?;

    // Another parent of that name has none, and the webhook says all again.
    test.parents().delete("a").await?;
    test.parents().until_gone("a").await?;
    let before = hook.count();
    let made = test.create(test.parent("a").greeting("Grace")).await?;
    let is_new = |asked: &Asked| asked.body["parent"]["metadata"]["uid"] == made["metadata"]["uid"];
    hook.until_asked("about the new one", is_new).await?;
    let asked = hook.asked();
    let of_new: Vec<_> = asked.iter().skip(before).filter(|asked| is_new(asked)).map(sent_tag).collect();
    ensure!(of_new.first() == Some(&None), "{of_new:?}");
    Ok(())
}

pub(crate) async fn a_webhook_without_etag_is_sent_no_tag_and_has_to_answer(
    test: &mut Fixture,
) -> Result<()> {
    let hook = Webhook::serve(tagged).await?;
    test.define_kind().await?;
    test.serve()?;
    let sync = Hook::webhook(&hook.url("/sync")).with("etag", json!({ "enabled": false }));
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(sync)).await?;
    test.create(test.parent("a").greeting("Ada")).await?;
    test.config_maps().until("child", "made", |_| true).await?;
    test.config_maps().delete("child").await?;
    hook.until_asked_again(1).await?;
    ensure!(hook.asked().iter().all(|asked| sent_tag(asked).is_none()), "{:?}", hook.asked());
    hook.answer(Answer::status(304));
    test.parents().merge("a", &json!({ "spec": { "who": "Grace" } })).await?;
    let says = |event: &Value| text(event, "/message").contains("unsupported status code: 304");
    test.until_event("a", "SyncError", says).await?;
    Ok(())
}
