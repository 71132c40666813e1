//! Tests of the session without a scheduler; those of the adapters have one.

use ciao_scheduler::net::tls::TrustFiles;
use std::path::PathBuf;

use ciao_scheduler::net::tls::LastRead;
use tokio::time::timeout;

use super::*;

#[derive(Clone)]
struct Nothing;

impl Requests for Nothing {
    type Ask = ();
    type Listing = ();

    const TOPICS: &'static [Topic] = &[];

    async fn send(&mut self, _client: &mut Client, (): ()) -> Result<(), ClientError> {
        Ok(())
    }

    async fn list(&mut self, _client: &mut Client) -> Result<(), ClientError> {
        Ok(())
    }

    fn entries((): &()) -> usize {
        0
    }
}

/// Time that is simulated, and enough for many tries.
const LONG: Duration = Duration::from_secs(600);

#[tokio::test(start_paused = true)]
async fn a_reason_is_reported_once_and_tries_end_with_the_coordinator() {
    let state = tempfile::tempdir().unwrap();
    let missing = |name: &str| -> PathBuf { state.path().join(name) };
    let config = ClientConfig {
        server: "127.0.0.1".to_owned(),
        server_name: None,
        cert: missing("no-certificate.pem"),
        trust: TrustFiles::without_crls(missing("no-ca.pem")),
        connect_timeout: LONG,
        answer_timeout: LONG,
        last: LastRead::default(),
    };
    let (hear, mut heard) = mpsc::channel(1);
    let session = tokio::spawn(run(config, Nothing, hear));
    let Some(SessionEvent::Down(why)) = heard.recv().await else {
        panic!("there is no connection");
    };
    assert!(why.contains("no-certificate.pem"), "{why}");
    let again = timeout(LONG, heard.recv()).await;
    assert!(again.is_err(), "{again:?}");
    drop(heard);
    session.await.unwrap();
}
