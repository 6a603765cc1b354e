use metahook_core::object::id::Gvk;

use super::*;

fn resource(api_version: &str, kind: &str) -> Arc<Resource> {
    let (gvk, plural) = (Gvk::new(api_version, kind), kind.to_lowercase() + "s");
    Arc::new(Resource { gvk, plural: plural.into(), namespaced: true, has_status: kind != "ConfigMap" })
}

fn object(kind: &str, name: &str, more: &Value) -> Value {
    let api_version = if kind == "Thing" { "example.com/v1" } else { "v1" };
    let metadata = json!({"name": name, "namespace": "ns"});
    let object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
    merge(&object, None, more, None)
}

fn id(kind: &str, name: &str) -> ObjectId {
    let api_version = if kind == "Thing" { "example.com/v1" } else { "v1" };
    ObjectId { resource: resource(api_version, kind), key: metahook_core::object::id::Key::new("ns", name) }
}

/// A world with one object from the beginning.
fn world(kind: &str, more: &Value) -> World {
    let mut world = World::default();
    world.add(&id(kind, "a").resource, object(kind, "a", more)).unwrap();
    world
}

fn stored(world: &World, id: &ObjectId) -> Value {
    world.get(id).unwrap().value().unwrap()
}

fn create(world: &mut World, kind: &str, name: &str, more: &Value) -> Result<Vec<Effect>, Refusal> {
    world.carry_out(&Op::Create { id: id(kind, name), body: object(kind, name, more) })
}

#[test]
fn a_new_object_gets_what_an_api_server_sets() {
    let mut world = World::default();
    create(&mut world, "Thing", "a", &json!({"spec": {}, "status": {"x": 1}})).unwrap();
    let made = stored(&world, &id("Thing", "a"));
    let metadata = json!({
        "name": "a", "namespace": "ns", "uid": "00000000-0000-4000-8000-000000000001",
        "creationTimestamp": TIME, "generation": 1, "resourceVersion": "1000001",
    });
    assert_eq!((&made["metadata"], made.get("status")), (&metadata, None));
    create(&mut world, "ConfigMap", "c", &json!({})).unwrap();
    assert_eq!(stored(&world, &id("ConfigMap", "c"))["metadata"].get("generation"), None);
    let taken = create(&mut world, "Thing", "a", &json!({})).unwrap_err().to_string();
    assert_eq!(taken, "an object of that name exists already");
}

#[test]
fn a_write_changes_its_part_alone_and_counts_what_counts() {
    let mut world =
        world("Thing", &json!({"spec": {"x": 1}, "metadata": {"uid": "u", "resourceVersion": "7"}}));
    let a = id("Thing", "a");
    let status = |x: i64| Op::Status { id: id("Thing", "a"), body: json!({"status": {"x": x}}) };
    assert_eq!(world.carry_out(&status(1)).unwrap().len(), 1);
    assert!(world.carry_out(&status(1)).unwrap().is_empty(), "it has that status");
    assert_eq!(stored(&world, &a)["metadata"]["generation"], 1);
    let body =
        object("Thing", "a", &json!({"spec": {"x": 2}, "status": {"x": 9}, "metadata": {"uid": "other"}}));
    assert_eq!(world.carry_out(&Op::Replace { id: a.clone(), body }).unwrap().len(), 1);
    let now = stored(&world, &a);
    assert_eq!((&now["spec"]["x"], &now["status"]["x"]), (&json!(2), &json!(1)));
    assert_eq!((&now["metadata"]["generation"], &now["metadata"]["uid"]), (&json!(2), &json!("u")));
}

#[test]
fn server_side_apply_takes_away_what_is_no_longer_applied() {
    let mut world = World::default();
    let a = id("ConfigMap", "a");
    let apply = |world: &World, data: Value| {
        let over = world.get(&id("ConfigMap", "a")).map(|now| (now.uid.clone(), now.version.clone()));
        let body = object("ConfigMap", "a", &json!({"data": data}));
        Op::Apply { id: id("ConfigMap", "a"), over, body, manager: "m".into() }
    };
    let first = apply(&world, json!({"x": "1", "y": "1"}));
    world.carry_out(&first).unwrap();
    world.rewrite(&a, |value| value["data"]["theirs"] = json!("1")).unwrap();
    let second = apply(&world, json!({"x": "2"}));
    world.carry_out(&second).unwrap();
    assert_eq!(stored(&world, &a)["data"], json!({"x": "2", "theirs": "1"}));
}

#[test]
fn a_deletion_waits_for_finalizers_and_takes_what_is_owned() {
    let mut world = world("Thing", &json!({"metadata": {"uid": "u", "finalizers": ["f"]}}));
    let a = id("Thing", "a");
    let owner = json!({"metadata": {"ownerReferences": [{"kind": "Thing", "name": "a", "uid": "u", "controller": true}]}});
    create(&mut world, "ConfigMap", "owned", &owner).unwrap();
    create(&mut world, "ConfigMap", "free", &json!({})).unwrap();
    let delete = Op::Delete { id: a.clone(), uid: Uid::new("u") };
    assert_eq!(world.carry_out(&Op::Delete { id: a.clone(), uid: Uid::new("x") }).unwrap().len(), 0);
    let effects = world.carry_out(&delete).unwrap();
    assert!(effects.len() == 1 && world.get(&a).unwrap().deleting);
    let is_it = |one: &str| one == "f";
    let effects = world.change_finalizers(&a, FinalizerChange::Remove(&is_it)).unwrap();
    let gone: Vec<_> = effects.iter().map(|effect| (effect.id.to_string(), effect.after.is_none())).collect();
    assert_eq!(gone, [("Thing ns/a".to_owned(), true), ("ConfigMap ns/owned".to_owned(), true)]);
    assert_eq!(world.all().count(), 1);
}

#[test]
fn owners_are_found_by_their_names() {
    let mut world = world("Thing", &json!({"metadata": {"uid": "u"}}));
    let owner =
        json!({"apiVersion": "example.com/v1", "kind": "Thing", "name": "a", "uid": "", "controller": true});
    let child = object("ConfigMap", "c", &json!({"metadata": {"ownerReferences": [owner]}}));
    let child = world.add(&id("ConfigMap", "c").resource, child).unwrap();
    world.find_owners().unwrap();
    assert_eq!(world.get(&child).unwrap().controller, Some(Uid::new("u")));
}
