//! Records what moved on one connection and when, in ticks, and says when it stood still for too
//! long.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use super::bounds::{ConnectionBounds, DRAINING_REPLY, IdleLimit, KEEP_ALIVE, WHOLE_REPLY};

/// Why a connection is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cut {
    /// A request got no reply: the request never ends, or the service cannot answer it.
    Request,
    /// The caller does not take the reply.
    Reply,
    /// The caller asked nothing for a long time.
    Idle,
    /// The service needs the connection for other callers.
    Crowded,
}

impl Cut {
    /// Returns whether a request that arrives after all is still answered.
    pub(crate) fn is_of_idle(self) -> bool {
        matches!(self, Self::Idle | Self::Crowded)
    }
}

/// Returns how many ticks a duration has: its whole seconds, rounded up.
fn ticks(duration: Duration) -> u32 {
    let seconds = duration
        .as_secs()
        .saturating_add(u64::from(duration.subsec_nanos() > 0));
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

/// The body that follows the head of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Body {
    /// The number of bytes that are left of the body. Zero if there is no body.
    Announced(usize),
    /// The body is chunked, and its end was not read yet.
    Chunked,
}

/// Marks a request as being answered, until this value is dropped.
pub(crate) struct Answering(Rc<ConnectionProgress>);

impl Answering {
    /// Notes that the body, if it is chunked, was read to its end.
    pub(crate) fn note_chunks_read(&self) {
        if self.0.answering.get() == Some(Body::Chunked) {
            self.0.answering.set(Some(Body::Announced(0)));
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answering.set(None);
    }
}

/// The progress of one connection.
///
/// The connection's guard, the tick of its worker, and the code that answers its requests share it.
#[derive(Default)]
pub(crate) struct ConnectionProgress {
    /// Bytes read since the last write, or since the start of an answer.
    unread: Cell<usize>,
    /// The tick when the first byte of the head came.
    asked: Cell<u32>,
    /// The tick of the last write, or the tick when a write began to wait.
    moved: Cell<u32>,
    is_writing: Cell<bool>,
    idle: Cell<IdleLimit>,
    /// The tick since which a reply is being written that was not taken at once.
    behind_since: Cell<Option<u32>>,
    answering: Cell<Option<Body>>,
    is_paused: Cell<bool>,
    is_closed: Cell<bool>,
    cut: Cell<Option<Cut>>,
    waker: RefCell<Option<Waker>>,
}

impl ConnectionProgress {
    pub(crate) fn new(now: u32) -> Self {
        let progress = Self::default();
        progress.restart(now);
        progress
    }

    /// Counts the time for the first byte from tick `now` on.
    pub(crate) fn restart(&self, now: u32) {
        self.moved.set(now);
    }

    /// Says for how long the connection may be idle, until something is read. Then
    /// [`IdleLimit::Usual`] holds again.
    pub(crate) fn may_be_idle(&self, limit: IdleLimit) {
        self.idle.set(limit);
    }

    /// Counts the time of a request from tick `now` on. The request was read whole.
    pub(crate) fn begin_request(&self, now: u32) {
        self.asked.set(now);
        self.unread.set(0);
    }

    /// Returns the bytes read since the last write, or since the start of an answer.
    pub(crate) fn unread(&self) -> usize {
        self.unread.get()
    }

    /// Notes that a request is being answered. The head of the request was read to its end.
    pub(crate) fn answer(self: &Rc<Self>, body: Body) -> Answering {
        self.unread.set(0);
        self.answering.set(Some(body));
        if body != Body::Announced(0) && self.resume() {
            self.wake();
        }
        Answering(Rc::clone(self))
    }

    /// Returns how many bytes may be read now.
    ///
    /// `limit` is the most bytes of a head, or of a body that the service does not take. While a
    /// reply is written that was not taken at once, the result is 0. A caller who does not read is
    /// not read from.
    pub(crate) fn allowed(&self, limit: usize) -> usize {
        if self.is_behind() {
            return 0;
        }
        let left = limit.saturating_sub(self.unread.get());
        match self.answering.get() {
            Some(Body::Announced(of_body)) => left.min(of_body),
            Some(Body::Chunked) | None => left,
        }
    }

    /// Returns whether the bytes that are read now are a body of known length.
    pub(crate) fn is_reading_known_length(&self) -> bool {
        matches!(self.answering.get(), Some(Body::Announced(_)))
    }

    pub(crate) fn note_read(&self, n_bytes: usize, now: u32) {
        let unread = self.unread.get();
        self.idle.set(IdleLimit::Usual);
        match self.answering.get() {
            Some(Body::Announced(left)) => {
                let left = left.saturating_sub(n_bytes);
                self.answering.set(Some(Body::Announced(left)));
            }
            Some(Body::Chunked) => {}
            None if unread == 0 => self.asked.set(now),
            None => {}
        }
        self.unread.set(unread.saturating_add(n_bytes));
    }

    /// Notes that bytes of a reply were taken, or are held back until the next one.
    pub(crate) fn note_written(&self, now: u32) {
        self.unread.set(0);
        self.note_taken(now);
    }

    /// Notes that the peer, or the kernel for the peer, took bytes.
    pub(crate) fn note_taken(&self, now: u32) {
        self.is_writing.set(false);
        self.moved.set(now);
    }

    /// Notes that a reply waits until its caller takes it.
    pub(crate) fn note_not_written(&self, now: u32) {
        if !self.is_writing.replace(true) {
            self.moved.set(now);
        }
        if self.behind_since.get().is_none() {
            self.behind_since.set(Some(now));
        }
    }

    /// Returns whether a reply waits that its caller did not take at once.
    pub(crate) fn is_behind(&self) -> bool {
        self.behind_since.get().is_some()
    }

    /// Notes that nothing is left to be written. Returns whether reading was paused for that.
    pub(crate) fn note_flushed(&self) -> bool {
        self.behind_since.take().is_some() && self.resume()
    }

    /// Pauses reading until something is written.
    pub(crate) fn pause(&self) {
        self.is_paused.set(true);
    }

    /// Ends a pause of reading. Returns whether there was one.
    pub(crate) fn resume(&self) -> bool {
        self.is_paused.replace(false)
    }

    pub(crate) fn cut(&self) -> Option<Cut> {
        self.cut.get()
    }

    /// Lets an idle connection live on, because its caller asked something.
    pub(crate) fn spare(&self) {
        self.cut.set(None);
    }

    /// Closes the connection when its task runs next, which is at once.
    pub(crate) fn end(&self, cut: Cut) {
        self.cut.set(Some(cut));
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    /// Remembers the task to wake if this connection is to end.
    pub(crate) fn park(&self, context: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        match waker.as_mut() {
            Some(waker) => waker.clone_from(context.waker()),
            None => *waker = Some(context.waker().clone()),
        }
    }

    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        self.waker.take();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// Returns the tick since which nothing is asked and nothing is answered, or `None` if the
    /// connection is in use.
    pub(crate) fn idle_since(&self) -> Option<u32> {
        let is_idle = self.unread.get() == 0 && self.is_at_rest();
        is_idle.then(|| self.moved.get())
    }

    /// Returns the tick since which the head of a request arrives without coming to its end, or
    /// `None`.
    pub(crate) fn asking_since(&self) -> Option<u32> {
        let is_asking = self.unread.get() > 0 && self.is_at_rest();
        is_asking.then(|| self.asked.get())
    }

    /// Returns whether nothing is answered or written, and the connection is not to end.
    fn is_at_rest(&self) -> bool {
        !self.is_writing.get() && self.answering.get().is_none() && self.cut.get().is_none()
    }

    /// Returns why this connection is over at tick `now`, or `None` if it is not.
    pub(crate) fn verdict(
        &self,
        bounds: &ConnectionBounds,
        now: u32,
        is_draining: bool,
    ) -> Option<Cut> {
        let is_over = |since: u32, limit: Duration| now.wrapping_sub(since) > ticks(limit);
        let reply = if is_draining {
            bounds.reply.min(DRAINING_REPLY)
        } else {
            bounds.reply
        };
        let idle = match self.idle.get() {
            IdleLimit::Short => Some(bounds.head),
            IdleLimit::Usual => Some(KEEP_ALIVE),
            IdleLimit::Unlimited => None,
        };
        let is_idle_over =
            (self.idle_since().zip(idle)).is_some_and(|(since, limit)| is_over(since, limit));
        let whole_reply = bounds.reply.saturating_mul(WHOLE_REPLY);
        let is_behind = self
            .behind_since
            .get()
            .is_some_and(|since| is_over(since, whole_reply));
        let is_answering_over =
            self.answering.get().is_some() && is_over(self.asked.get(), bounds.request);
        let is_asking_over = self
            .asking_since()
            .is_some_and(|since| is_over(since, bounds.head));
        if self.cut.get().is_some() {
            None
        } else if is_behind || (self.is_writing.get() && is_over(self.moved.get(), reply)) {
            Some(Cut::Reply)
        } else if is_answering_over || is_asking_over {
            Some(Cut::Request)
        } else if is_idle_over {
            Some(Cut::Idle)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: ConnectionBounds = ConnectionBounds {
        head: Duration::from_secs(5),
        request: Duration::from_secs(20),
        reply: Duration::from_secs(10),
        unread: 16 * 1024,
        connections: 100,
    };

    /// Returns the first cut from tick `from` on, with its tick.
    fn first_cut(
        progress: &ConnectionProgress,
        from: u32,
        is_draining: bool,
    ) -> Option<(u32, Cut)> {
        (from..1000).find_map(|now| {
            let cut = progress.verdict(&BOUNDS, now, is_draining)?;
            Some((now, cut))
        })
    }

    #[test]
    fn each_state_has_its_deadline_and_a_tick_more() {
        let silent = ConnectionProgress::new(0);
        assert_eq!(first_cut(&silent, 0, false), Some((6, Cut::Idle)));
        let idle = ConnectionProgress::new(0);
        idle.note_read(1, 0);
        idle.note_written(0);
        assert_eq!(first_cut(&idle, 0, false), Some((76, Cut::Idle)));
        let asking = ConnectionProgress::new(0);
        asking.note_read(1, 3);
        assert_eq!(first_cut(&asking, 3, false), Some((9, Cut::Request)));
        let asked = Rc::new(ConnectionProgress::new(0));
        asked.note_read(1, 3);
        let answering = asked.answer(Body::Announced(100));
        asked.note_read(1, 7);
        assert_eq!(first_cut(&asked, 3, false), Some((24, Cut::Request)));
        drop(answering);
        let stuck = ConnectionProgress::new(0);
        stuck.note_read(40, 1);
        stuck.note_not_written(5);
        assert_eq!(first_cut(&stuck, 5, false), Some((16, Cut::Reply)));
        assert_eq!(first_cut(&stuck, 5, true), Some((7, Cut::Reply)));
    }

    #[test]
    fn a_connection_is_idle_for_as_long_as_it_is_told() {
        let progress = ConnectionProgress::new(0);
        for (limit, cut_at) in [
            (IdleLimit::Usual, Some(79)),
            (IdleLimit::Unlimited, None),
            (IdleLimit::Short, Some(9)),
        ] {
            progress.note_read(1, 0);
            progress.note_written(3);
            progress.may_be_idle(limit);
            let cut = cut_at.map(|cut_at| (cut_at, Cut::Idle));
            assert_eq!(first_cut(&progress, 3, false), cut, "{limit:?}");
        }
        progress.note_read(1, 3);
        progress.note_written(3);
        assert_eq!(first_cut(&progress, 3, false), Some((79, Cut::Idle)));
    }

    #[test]
    fn the_time_of_a_request_that_waited_for_another_begins_with_it() {
        let progress = Rc::new(ConnectionProgress::new(0));
        progress.note_read(1, 3);
        progress.begin_request(10);
        let _answering = progress.answer(Body::Announced(0));
        assert_eq!(first_cut(&progress, 10, false), Some((31, Cut::Request)));
    }

    #[test]
    fn a_byte_more_is_no_progress_and_a_reply_is() {
        let progress = ConnectionProgress::new(0);
        for now in 0..5 {
            progress.note_read(1, now);
        }
        assert_eq!(first_cut(&progress, 5, false), Some((6, Cut::Request)));
        progress.note_written(5);
        assert_eq!(progress.unread(), 0);
        assert_eq!(first_cut(&progress, 5, false), Some((81, Cut::Idle)));
    }

    #[test]
    fn a_reply_that_is_taken_slowly_is_not_cut_for_six_times_as_long() {
        let progress = ConnectionProgress::new(0);
        for now in (0..60).step_by(10) {
            progress.note_written(now);
            progress.note_not_written(now);
            assert_eq!(progress.verdict(&BOUNDS, now + 10, false), None);
        }
        progress.note_written(60);
        progress.note_not_written(60);
        assert_eq!(progress.verdict(&BOUNDS, 61, false), Some(Cut::Reply));
        assert!(!progress.note_flushed(), "nothing was paused");
        progress.note_written(61);
        assert_eq!(progress.verdict(&BOUNDS, 62, false), None);
    }

    #[test]
    fn parts_of_a_second_count_as_a_whole_one() {
        for (ms, expected) in [(1, 1), (999, 1), (1000, 1), (1001, 2), (20_000, 20)] {
            assert_eq!(ticks(Duration::from_millis(ms)), expected, "{ms}");
        }
    }
}
