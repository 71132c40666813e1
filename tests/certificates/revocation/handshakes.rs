//! Real handshakes with revocation lists in force, at both ends.

use std::sync::Arc;

use ciao_scheduler::net::tls::{
    ClientFiles, ClientTls, LastRead, StaleCrls, TrustAnchors, TrustFiles, client_config, explain,
    server_config,
};
use proto_frames::Role;
use rustls::ServerConfig;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

use super::{Files, anchor, foreign, in_seconds, leaf, list};
use crate::certs::identity;
use crate::handshake::{handshake, issuer};

/// Clocks that are ahead.
#[derive(Debug)]
struct Ahead(UnixTime);

impl TimeProvider for Ahead {
    fn current_time(&self) -> Option<UnixTime> {
        Some(self.0)
    }
}

fn server(own: &str, anchors: &TrustAnchors) -> Arc<ServerConfig> {
    server_config(&identity(own), anchors).unwrap()
}

#[tokio::test]
async fn a_revoked_client_is_refused_and_learns_why() {
    let anchor = anchor();
    let files = Files::new(&[&anchor]);
    let (bad, good) = (leaf(&anchor, Role::AGENT), leaf(&anchor, Role::AGENT));
    files.write("list.pem", list(&anchor, &[&bad]).as_bytes());
    let strict = files.load(&["list.pem"]).unwrap();
    let plain = files.load(&[]).unwrap();
    let client = |own: &str| client_config(&identity(own), &plain).unwrap();
    let own = anchor.certified().pem();
    let (seen, told) = handshake(server(own, &strict), client(bad.pem()), "localhost").await;
    let seen = explain(&seen.unwrap_err());
    assert!(
        seen.contains("certificate is refused: it is revoked"),
        "{seen}"
    );
    let told = explain(&told.unwrap_err());
    assert_eq!(told, "the peer refuses our certificate: it is revoked");
    let (seen, told) = handshake(server(own, &strict), client(good.pem()), "localhost").await;
    assert!(seen.is_ok() && told.is_ok());
}

#[tokio::test]
async fn a_client_refuses_a_scheduler_that_is_revoked_leaf_or_anchor() {
    let (old, new) = (anchor(), anchor());
    let files = Files::new(&[&old, &new]);
    let plain = files.load(&[]).unwrap();
    let of_leaf = leaf(&new, Role::SCHEDULER);
    files.write("old.pem", list(&old, &[old.certified()]).as_bytes());
    files.write("new.pem", list(&new, &[&of_leaf]).as_bytes());
    let strict = files.load(&["old.pem", "new.pem"]).unwrap();
    let client = client_config(&identity(leaf(&new, Role::AGENT).pem()), &strict).unwrap();
    for revoked in [old.certified(), &of_leaf] {
        let server = server(revoked.pem(), &plain);
        let (_, told) = handshake(server, Arc::clone(&client), "localhost").await;
        let told = explain(&told.unwrap_err());
        assert!(told.contains("it is revoked"), "{told}");
    }
    let server = server(new.certified().pem(), &plain);
    let (seen, told) = handshake(server, client, "localhost").await;
    assert!(seen.is_ok() && told.is_ok());
}

#[tokio::test]
async fn in_a_roll_over_both_anchors_clients_are_let_in_but_for_the_revoked() {
    let (old, new) = (anchor(), anchor());
    let files = Files::new(&[&old, &new]);
    let plain = files.load(&[]).unwrap();
    let good = [leaf(&old, Role::AGENT), leaf(&new, Role::AGENT)];
    let bad = [leaf(&old, Role::AGENT), leaf(&new, Role::AGENT)];
    files.write("lists/old.pem", list(&old, &[&bad[0]]).as_bytes());
    files.write("lists/new.pem", list(&new, &[&bad[1]]).as_bytes());
    let server = server(new.certified().pem(), &files.load(&["lists"]).unwrap());
    for (own, is_good) in good
        .iter()
        .map(|it| (it, true))
        .chain(bad.iter().map(|it| (it, false)))
    {
        let client = client_config(&identity(own.pem()), &plain).unwrap();
        let (seen, _) = handshake(Arc::clone(&server), client, "localhost").await;
        assert_eq!(seen.is_ok(), is_good, "{seen:?}");
    }
}

#[tokio::test]
async fn a_list_that_has_gone_out_of_date_refuses_or_warns_as_it_was_said() {
    let anchor = anchor();
    let files = Files::new(&[&anchor]);
    let own = leaf(&anchor, Role::AGENT);
    files.write("list.pem", list(&anchor, &[]).as_bytes());
    let plain = files.load(&[]).unwrap();
    let client = client_config(&identity(own.pem()), &plain).unwrap();
    for (stale, is_let_in) in [(StaleCrls::Refuse, false), (StaleCrls::Warn, true)] {
        let now = UnixTime::now();
        let anchors = files.load_at(&["list.pem"], stale, now).unwrap();
        let mut later = (*server(anchor.certified().pem(), &anchors)).clone();
        later.time_provider = Arc::new(Ahead(in_seconds(3601)));
        let (seen, _) = handshake(Arc::new(later), Arc::clone(&client), "localhost").await;
        assert_eq!(seen.is_ok(), is_let_in);
        if let Err(error) = seen {
            let error = explain(&error);
            assert!(
                error.contains("the revocation list of its CA is out of date"),
                "{error}"
            );
        }
    }
}

#[test]
fn a_client_that_dials_again_takes_no_list_that_lets_in_again_what_is_revoked() {
    let anchor = anchor();
    let files = Files::new(&[&anchor]);
    let signer = issuer(anchor.certified().pem());
    let write = |number| {
        let list = foreign(number, &[]).signed_by(&signer).unwrap();
        files.write("list.pem", list.pem().unwrap().as_bytes());
    };
    files.write("own.pem", leaf(&anchor, Role::AGENT).pem().as_bytes());
    let own = ClientFiles {
        cert: files.path("own.pem"),
        trust: TrustFiles {
            crls: vec![files.path("list.pem")],
            ..TrustFiles::without_crls(files.path("CAcert.pem"))
        },
    };
    let last = LastRead::default();
    let dial = || last.or_now(&own).unwrap().tls;
    write(7);
    let seventh = dial();
    write(8);
    let eighth = dial();
    assert!(!Arc::ptr_eq(&seventh, &eighth), "a newer list is taken");
    for worse in ["older", "damaged", "gone"] {
        match worse {
            "older" => write(7),
            "damaged" => files.write("list.pem", b"no list"),
            _ => std::fs::remove_file(files.path("list.pem")).unwrap(),
        }
        assert!(
            Arc::ptr_eq(&dial(), &eighth),
            "{worse}: what was in force stays"
        );
    }
    assert!(
        LastRead::default().or_now(&own).is_err(),
        "there is nothing before it"
    );
}

#[tokio::test]
async fn a_client_presents_the_certificate_that_its_file_has_at_each_dial_and_the_old_where_it_has_none()
 {
    let anchor = anchor();
    let files = Files::new(&[&anchor]);
    let (first, second) = (leaf(&anchor, Role::AGENT), leaf(&anchor, Role::AGENT));
    let other_role = leaf(&anchor, Role::CONTROLLER);
    let write = |pem: &str| files.write("own.pem", pem.as_bytes());
    let own = ClientFiles {
        cert: files.path("own.pem"),
        trust: TrustFiles::without_crls(files.path("CAcert.pem")),
    };
    write(first.pem());
    let read = own.read().unwrap();
    let client = ClientTls::of_files(own, read, Role::AGENT);
    let scheduler = server(anchor.certified().pem(), &files.load(&[]).unwrap());
    let fingerprint = |pem: &str| identity(pem).peer().fingerprint;
    let (first_print, second_print) = (fingerprint(first.pem()), fingerprint(second.pem()));
    assert_ne!(first_print, second_print);
    for (contents, shown) in [
        (first.pem(), first_print),
        (second.pem(), second_print),
        ("no certificate", second_print),
        (other_role.pem(), second_print),
        (first.pem(), first_print),
    ] {
        write(contents);
        let tls = client.at_dial(None).await;
        let (seen, told) = handshake(Arc::clone(&scheduler), tls, "localhost").await;
        assert!(told.is_ok(), "{told:?}");
        assert_eq!(seen.unwrap().identity.fingerprint, shown, "{contents}");
    }
}

#[test]
fn a_programs_own_certificate_that_is_revoked_is_said_before_it_connects() {
    let anchor = anchor();
    let files = Files::new(&[&anchor]);
    let own = leaf(&anchor, Role::SCHEDULER);
    files.write("list.pem", list(&anchor, &[&own]).as_bytes());
    let anchors = files.load(&["list.pem"]).unwrap();
    for error in [
        server_config(&identity(own.pem()), &anchors).map(drop),
        client_config(&identity(own.pem()), &anchors).map(drop),
    ] {
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("cert.pem does not fit the CA in "),
            "{error}"
        );
        assert!(error.contains("it is revoked"), "{error}");
    }
}
