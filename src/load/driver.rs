//! The side of a load run that sends STARTs: an operator in the native encoding, a controller in the original's.
//!
//! One task writes, another one reads: [`Driver::drive`] sends while `listen` notes failures and reports. In the
//! native encoding the driver is an operator, whose commands always count; in gob it is a controller, whose commands
//! count only if it is the master, which a probe finds out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use proto_frames::payload::{Delete, Payload, Topic, Watch};
use proto_frames::{Encoding, Frame, Kind, Uuid};
use tokio::io::{ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

use crate::load::payloads::{RunId, StartShape, StartTemplate, reason_in};
use crate::load::peer::{Dialer, Inbound, Outbound, PeerError};
use crate::load::record::Recorder;

/// Bytes written at once when pipelining: one full TLS record.
///
/// With a rate, one START is written at a time instead.
const CHUNK_LEN: usize = 16 * 1024;

/// Number of the instance that finds out whether a controller is master; never the number of a measured one.
///
/// The highest number that fits the last part of a UUID.
const PROBE: usize = 0xffff_ffff_ffff;

/// How long a master may take to answer commands for a node that does not exist.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long one START may be under way before the window is opened all the same: longer than a scheduler holds a START
/// in doubt.
///
/// Without it a START that vanished would keep the window closed until the time limit.
const STALL: Duration = Duration::from_secs(40);

/// Stalls after which sending is given up.
const MAX_STALLS: u32 = 5;

/// What to send.
///
/// Made of the arguments of the command.
#[derive(Debug)]
pub struct Drive {
    /// How many STARTs.
    pub starts: usize,
    /// Their payload.
    pub template: StartTemplate,
    /// STARTs per second; `None` = as fast as they are taken.
    pub rate: Option<f64>,
    /// When to give up.
    pub deadline: Instant,
}

/// Why sending ended before all was sent.
///
/// Texts are printed in the report. The run is reported all the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Stopped {
    /// The connection ended.
    #[error("{0}")]
    Closed(String),
    /// The time limit was reached.
    #[error("the time limit was reached; see --time-limit")]
    TooLate,
    /// Several STARTs in a row had no answer.
    #[error("{MAX_STALLS} STARTs had no answer for {STALL:?} each")]
    Stalled,
}

/// How sending ended.
///
/// `sent` STARTs have to be accounted for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Driven {
    /// STARTs handed to the socket.
    pub sent: usize,
    /// Why it ended early, if it did.
    pub stopped: Option<Stopped>,
}

/// Whether STARTs may be sent.
///
/// The result of one wait for the window.
enum Admitted {
    /// So many.
    Starts(usize),
    /// None had an answer for [`STALL`].
    Stalled,
    /// The time limit was reached.
    TooLate,
    /// The connection ended, for this reason.
    Closed(String),
}

/// The driving connection.
///
/// Dropping it ends the task that reads, and the connection.
#[derive(Debug)]
pub struct Driver {
    uuid: Uuid,
    encoding: Encoding,
    /// Only [`Driver`] writes; the reading half is the listener's.
    writer: WriteHalf<TlsStream<TcpStream>>,
    /// Frames that are encoded and not yet written.
    outbound: Outbound,
    /// Shared with the listener.
    heard: Arc<Received>,
    recorder: Arc<Recorder>,
    /// Ends with the connection.
    listener: JoinHandle<()>,
}

/// What the driving connection has received.
///
/// Written by the listener, read by the driver.
#[derive(Debug)]
struct Received {
    run: RunId,
    recorder: Arc<Recorder>,
    /// Launchers of this run whose STATS came through: their READY has been dealt with.
    reports: AtomicU64,
    /// By any answer about the instance [`PROBE`].
    probe_answered: Notify,
    /// A report came, or the connection ended.
    changed: Notify,
    /// Why, once it has ended.
    closed: Mutex<Option<String>>,
}

impl Driver {
    /// Connects, and in the native encoding asks for the launchers' STATS.
    ///
    /// STATS pass the scheduler after it has dealt with the READY before them on the same connection: their arrival
    /// here says that the launcher can be given work.
    ///
    /// # Errors
    /// [`PeerError`].
    pub async fn connect(
        dialer: &Dialer,
        encoding: Encoding,
        run: RunId,
        recorder: Arc<Recorder>,
    ) -> Result<Self, PeerError> {
        let peer = dialer.dial(Uuid::new_v4(), None).await?;
        let (reader, writer) = split(peer.stream);
        let heard = Arc::new(Received {
            run,
            recorder: recorder.clone(),
            reports: AtomicU64::new(0),
            probe_answered: Notify::new(),
            changed: Notify::new(),
            closed: Mutex::new(None),
        });
        let listener = tokio::spawn(listen(reader, peer.inbound, heard.clone()));
        let mut driver = Self {
            uuid: peer.uuid,
            encoding,
            writer,
            outbound: peer.outbound,
            heard,
            recorder,
            listener,
        };
        if encoding == Encoding::Native {
            let watch = Watch {
                topics: vec![Topic::Stats],
            };
            // A launcher's STATS may overtake it on the way through the scheduler: it counts once something behind it is
            // answered.
            let watch = Frame::new(Kind::WATCH, driver.uuid, watch.encode());
            let delete = driver.probe_delete(Uuid::nil());
            driver.is_answered([watch, delete]).await;
        }
        Ok(driver)
    }

    /// A DELETE of the instance [`PROBE`], which is not there.
    fn probe_delete(&self, node: Uuid) -> Frame {
        let delete = Delete {
            instance_uuid: self.heard.run.instance(PROBE),
            workload_agent_uuid: node.to_string(),
            stop: false,
            ..Delete::default()
        };
        Frame::new(Kind::DELETE, self.uuid, delete.encode())
    }

    /// Sends these, and waits for the answer to a command for [`PROBE`] among them; a few seconds at most.
    async fn is_answered(&mut self, frames: impl IntoIterator<Item = Frame>) -> bool {
        for frame in frames {
            self.outbound.push(&frame);
        }
        let answered = async {
            self.outbound.flush(&mut self.writer).await.ok()?;
            self.heard.probe_answered.notified().await;
            Some(())
        };
        matches!(
            tokio::time::timeout(PROBE_TIMEOUT, answered).await,
            Ok(Some(()))
        )
    }

    /// Waits until the STATS of `launchers` launchers have come through, and then asks for no more of them.
    ///
    /// In the original's encoding STATS come to controllers unasked.
    ///
    /// # Errors
    /// How many have, at the deadline.
    pub async fn wait_for_reports(
        &mut self,
        launchers: usize,
        deadline: Instant,
    ) -> Result<(), u64> {
        loop {
            let changed = self.heard.changed.notified();
            let reports = self.heard.reports.load(Relaxed);
            if reports >= launchers as u64 {
                break;
            }
            if self.heard.closed.lock().is_some()
                || tokio::time::timeout_at(deadline, changed).await.is_err()
            {
                return Err(reports);
            }
        }
        if self.encoding == Encoding::Native {
            let quiet = Watch { topics: Vec::new() };
            self.outbound
                .push(&Frame::new(Kind::WATCH, self.uuid, quiet.encode()));
            // A connection that ended here is found out by the first START.
            let _ = self.outbound.flush(&mut self.writer).await;
        }
        Ok(())
    }

    /// Whether commands of this connection are carried out: a backup controller's are not.
    ///
    /// Asked by two commands for a node that does not exist. A master hears that the START fits nowhere (from the
    /// original as well) and that there is nothing to delete (from this project's scheduler, which may hold the START
    /// back for a while after its own restart).
    ///
    /// Waits a few seconds at most.
    pub async fn is_heeded(&mut self) -> bool {
        if self.encoding == Encoding::Native {
            return true; // an operator always is
        }
        let nowhere = Uuid::new_v4();
        let shape = StartShape {
            mem_mib: 1,
            vcpus: 1,
            node: Some(nowhere),
            ..StartShape::default()
        };
        let start = StartTemplate::new(self.heard.run, shape).start(PROBE);
        let start = Frame::new(Kind::START, self.uuid, start);
        let delete = self.probe_delete(nowhere);
        self.is_answered([delete, start]).await
    }

    /// Sends the STARTs, as many at a time as the recorder's window admits; calls `half_way` once, half way.
    ///
    /// In each round: keep to the rate, wait for the window, write. `half_way` is called after the write that reaches
    /// half of the STARTs. When no START gets an answer for 40 s, one START more is sent; the sixth time, sending is
    /// given up.
    pub async fn drive(&mut self, drive: &Drive, mut half_way: impl FnMut()) -> Driven {
        let per_write = match drive.rate {
            Some(_) => 1,
            None => (CHUNK_LEN / drive.template.size()).max(1),
        };
        let began = Instant::now();
        let (mut sent, mut stalls) = (0, 0);
        let stopped = loop {
            if sent == drive.starts {
                break None;
            }
            if let Some(rate) = drive.rate {
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "a pace needs no more than 52 bits"
                )]
                tokio::time::sleep_until(began + Duration::from_secs_f64(sent as f64 / rate)).await;
            }
            let admitted = match self
                .admitted(per_write.min(drive.starts - sent), drive.deadline)
                .await
            {
                Admitted::Starts(count) => count,
                Admitted::Stalled if stalls < MAX_STALLS => {
                    stalls += 1;
                    1
                }
                Admitted::Stalled => break Some(Stopped::Stalled),
                Admitted::TooLate => break Some(Stopped::TooLate),
                Admitted::Closed(reason) => break Some(Stopped::Closed(reason)),
            };
            let seqs = sent..sent + admitted;
            if let Err(reason) = self.write(&drive.template, seqs, drive.deadline).await {
                break Some(reason);
            }
            let before = sent;
            sent += admitted;
            if before < drive.starts / 2 && sent >= drive.starts / 2 {
                half_way();
            }
        };
        Driven { sent, stopped }
    }

    /// Waits until up to `wanted` STARTs may be sent, or something keeps them from it.
    ///
    /// A closed connection wins over everything else.
    async fn admitted(&self, wanted: usize, deadline: Instant) -> Admitted {
        let stalled = Instant::now() + STALL;
        tokio::select! {
            biased;
            reason = self.heard.until_closed() => Admitted::Closed(reason),
            admitted = tokio::time::timeout_at(deadline.min(stalled), self.recorder.admit(wanted)) => match admitted {
                Ok(count) => Admitted::Starts(count),
                Err(_) if deadline <= stalled => Admitted::TooLate,
                Err(_) => Admitted::Stalled,
            },
        }
    }

    /// Writes these STARTs in one go.
    ///
    /// Times are noted before the write, all alike: STARTs of one write leave together.
    async fn write(
        &mut self,
        template: &StartTemplate,
        seqs: std::ops::Range<usize>,
        deadline: Instant,
    ) -> Result<(), Stopped> {
        for seq in seqs.clone() {
            self.outbound
                .push(&Frame::new(Kind::START, self.uuid, template.start(seq)));
        }
        seqs.for_each(|seq| self.recorder.sent(seq));
        match tokio::time::timeout_at(deadline, self.outbound.flush(&mut self.writer)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(e)) => Err(Stopped::Closed(e.to_string())),
            Err(_) => Err(Stopped::TooLate),
        }
    }

    /// Waits until the fate of the STARTs sent is known, nothing has changed for `grace`, or `deadline`.
    ///
    /// See [`Recorder::settle`].
    pub async fn settle(&self, sent: usize, grace: Duration, deadline: Instant) {
        self.recorder.settle(sent, grace, deadline.into_std()).await;
    }

    /// Why the connection ended, if it did.
    #[must_use]
    pub fn closed(&self) -> Option<String> {
        self.heard.closed.lock().clone()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// Notes what the scheduler says until the connection ends.
///
/// Never blocks on the driver: it only stores.
async fn listen(
    mut stream: ReadHalf<TlsStream<TcpStream>>,
    mut inbound: Inbound,
    heard: Arc<Received>,
) {
    let error = loop {
        match inbound.next(&mut stream).await {
            Ok(frame) => heard.note(&frame),
            Err(e) => break e,
        }
    };
    *heard.closed.lock() = Some(error.to_string());
    heard.changed.notify_waiters();
}

impl Received {
    /// Waits until the connection has ended, and says why.
    ///
    /// The waiter is registered before the look, so that a closing in between is not missed.
    async fn until_closed(&self) -> String {
        loop {
            let changed = self.changed.notified();
            if let Some(reason) = self.closed.lock().clone() {
                return reason;
            }
            changed.await;
        }
    }

    /// Frames of other kinds are ignored.
    fn note(&self, frame: &Frame) {
        match frame.kind {
            Kind::STATS if self.run.reported(&frame.payload) => {
                self.reports.fetch_add(1, Relaxed);
                self.changed.notify_waiters();
            }
            Kind::START_FAILURE | Kind::DELETE_FAILURE | Kind::COMMAND_REFUSED => {
                self.note_failure(&frame.payload)
            }
            _ => {}
        }
    }

    /// The instance and the reason are looked for in the text, see [`crate::load::payloads`].
    fn note_failure(&self, payload: &[u8]) {
        match self.run.seq_in(payload) {
            Some(PROBE) => self.probe_answered.notify_one(),
            Some(seq) => self.recorder.failed(seq, reason_in(payload)),
            None => {}
        }
    }
}
