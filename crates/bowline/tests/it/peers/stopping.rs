//! An owner that stops in good order: what is in progress is finished, and the rest goes on elsewhere at once.

use serde_json::json;

use super::fleet::{Fleet, calling};
use crate::kit::programs::{text_of, until_gone};
use crate::kit::wait::{until, until_so};

#[tokio::test]
async fn an_owner_that_stops_hands_over_what_nothing_uses() {
    let Some(mut fleet) = Fleet::start(3).await else {
        return;
    };
    // A second session at the same owner, which a call keeps from stopping.
    let mut busy = fleet.client.clone();
    assert_eq!(busy.begin().await.status, 200);
    let fleet_client = fleet.open().await;
    fleet = fleet_client;
    let pid = fleet.pid(1).await;
    let busy = busy.moved_to(&fleet.gateways[1]);
    let call = calling(1, "wait", &json!({"key": "busy"}));
    let owner = fleet.gateways.remove(0);
    let ready = format!("http://{}/ready", owner.admin().unwrap());
    let stopping = async {
        fleet.tally.until("wait busy", 1).await;
        let stopped = owner.stop();
        let elsewhere = async {
            // Long before the owner is gone.
            until_so("it stops", async || {
                let asked = reqwest::get(&ready).await;
                asked.is_ok_and(|answer| answer.status() == 503)
            })
            .await;
            let answer = fleet.at(0).call(2, "bump", &json!({"key": "moved"})).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            assert_ne!(text_of(&answer), pid.to_string());
            until_gone(pid).await;
            std::fs::write(fleet.tally.path().with_extension("go"), "").unwrap();
        };
        tokio::join!(stopped, elsewhere);
    };
    let (answer, ()) = tokio::join!(busy.send(&call), stopping);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.to(&json!(1)).unwrap()["result"].is_object());
    assert_eq!(
        (
            fleet.tally.count("bump moved"),
            fleet.tally.count("wait busy")
        ),
        (1, 1)
    );
    // The busy one follows when its owner is gone.
    let answer = busy.call(3, "bump", &json!({"key": "followed"})).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(
        (fleet.tally.count("bump followed"), fleet.tally.starts()),
        (1, 4)
    );
}

#[tokio::test]
async fn a_listening_client_moves_with_its_session() {
    let Some(fleet) = Fleet::start(2).await else {
        return;
    };
    let mut fleet = fleet.open().await;
    let pid = fleet.pid(0).await;
    let mut get = fleet.at(1).listen().await;
    fleet.gateways.remove(0).stop().await;
    until_gone(pid).await;
    let answer = fleet.at(0).call(1, "bump", &json!({"key": "k"})).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let notify = json!({"method": "notifications/message", "times": 1});
    fleet.at(0).call(2, "notify", &notify).await;
    loop {
        let (_, message) = get.next_message().await;
        if message["method"] == "notifications/message" {
            break;
        }
        let method = message["method"].as_str().unwrap_or_default();
        assert!(method.ends_with("list_changed"), "{message}");
    }
    until("one process is left", || fleet.tally.starts() == 2).await;
    assert_eq!(fleet.tally.count("bump k"), 1);
}
