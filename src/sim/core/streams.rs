//! Streams and events. Work is done when it is enqueued, unless the stream has something pending.

use std::ffi::c_uint;

use crate::sys::{
    CUevent, CUevent_flags, CUevent_wait_flags, CUhostFn, CUresult, CUstream,
    CUstreamWriteValue_flags, CUstream_flags, Call,
};

use super::super::misuse::MisuseKind;
use super::abi::{Out, Raw, Token};
use super::host_function::HostFunction;
use super::queues::{Item, Stream};
use super::work::Work;
use super::{demand, refuse, Answer, Refusal, State};

const FIRST: u64 = 0xc1_0000_0000;
const STEP: u64 = 0x40;

/// The numbers that stand for the current context's default stream: null, the legacy one, the thread's own.
const DEFAULT_STREAMS: [Token; 3] = [Token(0), Token(1), Token(2)];

/// An event and its last record.
#[derive(Debug)]
pub(super) struct Event {
    device: usize,
    /// How often it was recorded.
    recorded: u64,
    /// The last record, while the stream has yet to reach it.
    pub(super) pending: Option<u64>,
}

impl State {
    pub(super) fn cuStreamCreate(&mut self, stream: Out<CUstream>, flags: c_uint) -> Answer {
        stream.wanted()?;
        demand(flags & !CUstream_flags::CU_STREAM_NON_BLOCKING.0 == 0)?;
        let device = self.working_device()?;
        let token = self.add_stream(device, false);
        stream.put(token.pointer())
    }

    /// What is pending is done all the same, held or not. What waits for an event is done when that is reached.
    pub(super) fn cuStreamDestroy_v2(&mut self, stream: Token) -> Answer {
        demand(!DEFAULT_STREAMS.contains(&stream))?;
        self.current_device()?;
        let stream = self.known_stream(Call::cuStreamDestroy_v2, stream)?;
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.held = false;
            stream.ending = true;
        }
        self.run_streams();
        Ok(())
    }

    pub(super) fn cuStreamSynchronize(&mut self, stream: Token) -> Answer {
        if self.stream_is_idle(Call::cuStreamSynchronize, stream)? {
            return Ok(());
        }
        Err(Refusal::NotYet)
    }

    pub(super) fn cuStreamQuery(&mut self, stream: Token) -> Answer {
        if self.stream_is_idle(Call::cuStreamQuery, stream)? {
            return Ok(());
        }
        refuse(CUresult::CUDA_ERROR_NOT_READY)
    }

    pub(super) fn cuEventCreate(&mut self, event: Out<CUevent>, flags: c_uint) -> Answer {
        const KNOWN: c_uint = CUevent_flags::CU_EVENT_BLOCKING_SYNC.0
            | CUevent_flags::CU_EVENT_DISABLE_TIMING.0
            | CUevent_flags::CU_EVENT_INTERPROCESS.0;
        event.wanted()?;
        demand(flags & !KNOWN == 0)?;
        // Another process could not be told the time.
        let untimed = flags & CUevent_flags::CU_EVENT_DISABLE_TIMING.0 != 0;
        demand(untimed || flags & CUevent_flags::CU_EVENT_INTERPROCESS.0 == 0)?;
        let device = self.working_device()?;
        let token = self.new_token();
        let made = Event {
            device,
            recorded: 0,
            pending: None,
        };
        self.events.insert(token, made);
        event.put(token.pointer())
    }

    pub(super) fn cuEventDestroy_v2(&mut self, event: Token) -> Answer {
        self.current_device()?;
        self.known_event(Call::cuEventDestroy_v2, event)?;
        self.events.remove(&event);
        Ok(())
    }

    pub(super) fn cuEventRecord(&mut self, event: Token, stream: Token) -> Answer {
        let current = self.working_device()?;
        let device = self.known_event(Call::cuEventRecord, event)?.device;
        self.healthy(device)?;
        let stream = self.resolve_stream(Call::cuEventRecord, stream, current)?;
        let deferred = self.defers(stream);
        let recorded = self.known_event(Call::cuEventRecord, event)?;
        recorded.recorded += 1;
        let ticket = recorded.recorded;
        recorded.pending = deferred.then_some(ticket);
        if deferred {
            self.enqueue(stream, Item::Record { event, ticket });
        }
        Ok(())
    }

    pub(super) fn cuEventSynchronize(&mut self, event: Token) -> Answer {
        if self.event_is_reached(Call::cuEventSynchronize, event)? {
            return Ok(());
        }
        Err(Refusal::NotYet)
    }

    pub(super) fn cuEventQuery(&mut self, event: Token) -> Answer {
        if self.event_is_reached(Call::cuEventQuery, event)? {
            return Ok(());
        }
        refuse(CUresult::CUDA_ERROR_NOT_READY)
    }

    /// The last record counts, at the time of this call.
    pub(super) fn cuStreamWaitEvent(
        &mut self,
        stream: Token,
        event: Token,
        flags: c_uint,
    ) -> Answer {
        let (stream, _) = self.working_stream(Call::cuStreamWaitEvent, stream)?;
        // The other flag is for streams that are being captured.
        demand(flags == CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT.0)?;
        let awaited = self.known_event(Call::cuStreamWaitEvent, event)?;
        let (device, pending) = (awaited.device, awaited.pending);
        self.healthy(device)?;
        if let Some(ticket) = pending {
            self.enqueue(stream, Item::Wait { event, ticket });
        }
        Ok(())
    }

    pub(super) fn cuStreamWriteValue32_v2(
        &mut self,
        stream: Token,
        address: u64,
        value: u32,
        flags: c_uint,
    ) -> Answer {
        // The flag gives up an order that is kept here with or without it.
        const KNOWN: c_uint = CUstreamWriteValue_flags::CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER.0;
        let (stream, device) = self.working_stream(Call::cuStreamWriteValue32_v2, stream)?;
        if !self.config.devices[device].stream_memory_operations {
            return refuse(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        demand(flags & !KNOWN == 0 && address % 4 == 0)?;
        let call = Call::cuStreamWriteValue32_v2;
        let work = Work::Word { to: address, value };
        self.give(call, (stream, device), work)
    }

    /// The function is called without the core's lock, by the thread that brings the stream to it.
    pub(super) fn cuLaunchHostFunc(
        &mut self,
        stream: Token,
        function: CUhostFn,
        data: Raw,
    ) -> Answer {
        let (stream, _) = self.working_stream(Call::cuLaunchHostFunc, stream)?;
        let function = HostFunction::new(function, data)?;
        self.enqueue(stream, Item::Call(function));
        self.run_streams();
        Ok(())
    }

    /// The stream that a token means, and its device, if work can be given to it.
    pub(super) fn working_stream(&mut self, call: Call, stream: Token) -> Answer<(Token, usize)> {
        let current = self.working_device()?;
        let stream = self.resolve_stream(call, stream, current)?;
        let device = self.stream_device(stream)?;
        self.healthy(device)?;
        Ok((stream, device))
    }

    fn stream_is_idle(&mut self, call: Call, stream: Token) -> Answer<bool> {
        let (stream, _) = self.working_stream(call, stream)?;
        let stream = self.streams.get(&stream);
        Ok(stream.is_none_or(Stream::is_idle))
    }

    fn event_is_reached(&mut self, call: Call, event: Token) -> Answer<bool> {
        self.working_device()?;
        let event = self.known_event(call, event)?;
        let (device, pending) = (event.device, event.pending);
        self.healthy(device)?;
        Ok(pending.is_none())
    }

    /// The stream that a token means while a context of `current` is current.
    fn resolve_stream(&mut self, call: Call, stream: Token, current: usize) -> Answer<Token> {
        if DEFAULT_STREAMS.contains(&stream) {
            return Ok(default_stream(current));
        }
        self.known_stream(call, stream)
    }

    fn known_stream(&mut self, call: Call, stream: Token) -> Answer<Token> {
        if self.is_live(stream) {
            return Ok(stream);
        }
        self.misuse(call, MisuseKind::NoSuchStream, stream.0);
        refuse(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Whether it was created and not destroyed. A destroyed stream may have work left.
    fn is_live(&self, stream: Token) -> bool {
        let stream = self.streams.get(&stream);
        stream.is_some_and(|stream| !stream.ending)
    }

    fn known_event(&mut self, call: Call, event: Token) -> Answer<&mut Event> {
        if !self.events.contains_key(&event) {
            self.misuse(call, MisuseKind::NoSuchEvent, event.0);
        }
        match self.events.get_mut(&event) {
            Some(event) => Ok(event),
            None => refuse(CUresult::CUDA_ERROR_INVALID_HANDLE),
        }
    }

    fn stream_device(&self, stream: Token) -> Answer<usize> {
        match self.streams.get(&stream) {
            Some(stream) => Ok(stream.device),
            None => refuse(CUresult::CUDA_ERROR_INVALID_HANDLE),
        }
    }

    /// Blocks while work of the device is pending.
    pub(super) fn wait_for_device(&self, device: usize) -> Answer {
        let busy = |stream: &Stream| stream.device == device && !stream.is_idle();
        if self.streams.values().any(busy) {
            return Err(Refusal::NotYet);
        }
        Ok(())
    }

    /// `false` if there is no such stream.
    pub(super) fn hold_stream(&mut self, stream: Token) -> bool {
        self.set_held(stream, true)
    }

    /// Lets a held stream run. `false` if there is no such stream.
    pub(super) fn release_stream(&mut self, stream: Token) -> bool {
        let known = self.set_held(stream, false);
        self.run_streams();
        known
    }

    fn set_held(&mut self, stream: Token, held: bool) -> bool {
        let stream = self.stream_to_control(stream);
        let stream = stream.filter(|stream| self.is_live(*stream));
        match stream.and_then(|stream| self.streams.get_mut(&stream)) {
            Some(stream) => {
                stream.held = held;
                true
            }
            None => false,
        }
    }

    fn stream_to_control(&self, stream: Token) -> Option<Token> {
        if DEFAULT_STREAMS.contains(&stream) {
            return self.current_device().ok().map(default_stream);
        }
        Some(stream)
    }

    /// Removes what a context leaves behind.
    pub(super) fn clear_streams(&mut self, device: usize) {
        self.drop_pending_work(device);
        self.streams
            .retain(|_, stream| stream.device != device || stream.is_default);
        self.events.retain(|_, event| event.device != device);
        if let Some(stream) = self.streams.get_mut(&default_stream(device)) {
            stream.held = false;
        }
        self.run_streams();
    }

    /// The streams that were created and not destroyed.
    pub(super) fn created_streams(&self) -> usize {
        let streams = self.streams.values();
        streams
            .filter(|stream| !stream.is_default && !stream.ending)
            .count()
    }

    pub(super) fn make_default_streams(&mut self) {
        for device in 0..self.config.devices.len() {
            self.add_stream(device, true);
        }
    }

    fn add_stream(&mut self, device: usize, is_default: bool) -> Token {
        let token = self.new_token();
        self.streams.insert(token, Stream::new(device, is_default));
        token
    }

    pub(super) fn new_token(&mut self) -> Token {
        let token = Token(FIRST + STEP * self.issued_tokens);
        self.issued_tokens += 1;
        token
    }
}

/// The default streams are the first tokens issued, one for each device.
fn default_stream(device: usize) -> Token {
    Token(FIRST + STEP * device as u64)
}
