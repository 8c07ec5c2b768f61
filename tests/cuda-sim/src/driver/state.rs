//! State of the library for the whole process: its devices, and the objects of handles.
//!
//! Invariant: a handle is a number that is used once and never dereferenced. A lookup therefore detects a
//! handle that was destroyed or that never existed.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::code::Code;
use super::config::Config;
use super::context::{Context, Primary};
use super::entry::Answer;
use super::event::Event;
use super::exports;
use super::module::{Function, Module};
use super::queue::Queues;
use super::report::{self, Report};
use super::stream::Stream;
use crate::memory::{Block, Invalid, Memory};

/// Driver of a process.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) config: Config,
    pub(super) devices: Vec<Device>,
    pub(super) report: Report,
    initialized: AtomicBool,
    objects: Mutex<Objects>,
    allocations: Mutex<BTreeMap<u64, Allocation>>,
    queues: Mutex<Queues>,
}

/// A simulated GPU.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) memory: Memory,
    pub(super) primary: Mutex<Primary>,
    /// Code of the fault that ended all work on the device.
    fault: OnceLock<Code>,
}

impl Device {
    /// Returns the error of the device, if work on it has ended.
    pub(super) fn check(&self) -> Answer {
        self.fault.get().map_or(Ok(()), |&code| Err(code))
    }

    /// Ends all work on the device. NVIDIA documents that the process has to end after such an error.
    pub(super) fn fail(&self, code: Code) {
        self.fault.get_or_init(|| code);
    }
}

/// Object of a handle.
#[derive(Clone, Debug)]
pub(super) enum Object {
    Context(Arc<Context>),
    Stream(Arc<Stream>),
    Event(Arc<Event>),
    Module(Arc<Module>),
    Function(Arc<Function>),
}

#[derive(Debug, Default)]
struct Objects {
    given: u64,
    living: HashMap<u64, Object>,
}

/// Purpose of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Device memory of `cuMemAlloc`.
    Device,
    /// Managed memory of `cuMemAllocManaged`, which the host reaches too.
    Managed,
    /// Pinned host memory of `cuMemAllocHost`, which the device reaches too.
    Host,
    /// Variable of a module.
    Global,
}

/// Record of an allocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allocation {
    /// Handle of the context that allocated the memory.
    pub(super) context: u64,
    pub(super) bytes: u64,
    pub(super) kind: Kind,
    /// True if a program has asked to free the memory. A stream may still have to do so.
    pub(super) is_ending: bool,
}

/// Returns the driver of the process. If the environment is invalid, every call fails and the first one
/// reports why.
pub(super) fn driver() -> Answer<&'static Driver> {
    static DRIVER: OnceLock<Result<Driver, Code>> = OnceLock::new();
    let made = DRIVER.get_or_init(|| {
        let config = Config::read(|name| std::env::var(name).ok(), exports::is_known).map_err(|what| {
            report::say(&what);
            Code::UNKNOWN
        })?;
        Ok(Driver::new(config))
    });
    made.as_ref().map_err(|code| *code)
}

impl Driver {
    fn new(config: Config) -> Driver {
        // The devices' addresses start 1 TiB apart.
        let memory = |number| Memory::from(config.facts.memory, (number as u64) << 40);
        let device =
            |number| Device { memory: memory(number), primary: Mutex::default(), fault: OnceLock::new() };
        Driver {
            devices: (0..config.devices).map(device).collect(),
            report: Report::default(),
            config,
            initialized: AtomicBool::new(false),
            objects: Mutex::default(),
            allocations: Mutex::default(),
            queues: Mutex::default(),
        }
    }

    pub(super) fn initialize(&'static self) {
        if !self.initialized.swap(true, Ordering::SeqCst) {
            report::at_exit();
        }
    }

    /// Returns the driver if `cuInit` was called.
    pub(super) fn initialized(&'static self) -> Answer<&'static Driver> {
        if self.initialized.load(Ordering::SeqCst) { Ok(self) } else { Err(Code::NOT_INITIALIZED) }
    }

    /// Returns the device of a `CUdevice`, which is its ordinal.
    pub(super) fn device(&self, number: i32) -> Answer<&Device> {
        usize::try_from(number).ok().and_then(|number| self.devices.get(number)).ok_or(Code::INVALID_DEVICE)
    }

    /// Locks the queues of all work. The lock is kept while any work runs.
    pub(super) fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a handle for the object that `make` returns for it.
    pub(super) fn insert(&self, make: impl FnOnce(u64) -> Object) -> u64 {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        objects.given += 1;
        // A handle is no small number and no valid pointer, because it is outside the canonical addresses.
        let handle = 0xc0de_0000_0000_0000 + 16 * objects.given;
        let object = make(handle);
        objects.living.insert(handle, object);
        handle
    }

    fn get(&self, handle: u64) -> Option<Object> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner).living.get(&handle).cloned()
    }

    /// Removes a handle.
    pub(super) fn remove(&self, handle: u64) {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner).living.remove(&handle);
    }

    /// Removes all handles for whose objects `ends` returns true.
    pub(super) fn remove_if(&self, ends: impl Fn(&Object) -> bool) {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        objects.living.retain(|_, object| !ends(object));
    }

    pub(super) fn context(&self, handle: u64) -> Answer<Arc<Context>> {
        match self.get(handle) {
            Some(Object::Context(context)) => Ok(context),
            _ => Err(Code::INVALID_CONTEXT),
        }
    }

    pub(super) fn event(&self, handle: u64) -> Answer<Arc<Event>> {
        match self.get(handle) {
            Some(Object::Event(event)) => Ok(event),
            _ => Err(Code::INVALID_HANDLE),
        }
    }

    pub(super) fn stream(&self, handle: u64) -> Answer<Arc<Stream>> {
        match self.get(handle) {
            Some(Object::Stream(stream)) => Ok(stream),
            _ => Err(Code::INVALID_HANDLE),
        }
    }

    pub(super) fn module(&self, handle: u64) -> Answer<Arc<Module>> {
        match self.get(handle) {
            Some(Object::Module(module)) => Ok(module),
            _ => Err(Code::INVALID_HANDLE),
        }
    }

    pub(super) fn function(&self, handle: u64) -> Answer<Arc<Function>> {
        match self.get(handle) {
            Some(Object::Function(function)) => Ok(function),
            _ => Err(Code::INVALID_HANDLE),
        }
    }

    /// Allocates memory for a context.
    pub(super) fn allocate(&self, context: &Context, bytes: u64, kind: Kind) -> Answer<u64> {
        let memory = &context.device().memory;
        let address = match kind {
            Kind::Device | Kind::Global => memory.allocate(bytes),
            Kind::Managed | Kind::Host => memory.allocate_shared(bytes),
        };
        let address = address.ok_or(Code::OUT_OF_MEMORY)?;
        let allocation = Allocation { context: context.handle, bytes, kind, is_ending: false };
        self.allocations.lock().unwrap_or_else(PoisonError::into_inner).insert(address, allocation);
        self.report.allocated(bytes);
        Ok(address)
    }

    /// Marks memory of one of these kinds as being freed. A call of [`Self::end`] has to follow.
    pub(super) fn claim(&self, address: u64, kinds: &[Kind]) -> Answer {
        let mut allocations = self.allocations.lock().unwrap_or_else(PoisonError::into_inner);
        let why = match allocations.get_mut(&address) {
            Some(allocation) if allocation.is_ending => "it is being freed".into(),
            Some(allocation) if kinds.contains(&allocation.kind) => {
                allocation.is_ending = true;
                return Ok(());
            }
            Some(_) => "it was allocated otherwise".into(),
            None => {
                self.find(address, 1).err().map_or("it is within other memory".into(), |why| why.to_string())
            }
        };
        report::say(&format!("{address:#x} is not the start of memory to free: {why}"));
        Err(Code::INVALID_VALUE)
    }

    /// Frees memory, unless the end of its context did so.
    pub(super) fn end(&self, address: u64) {
        let mut allocations = self.allocations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(allocation) = allocations.remove(&address) {
            self.report.freed(allocation.bytes);
            let freed = self.devices.iter().any(|device| device.memory.free(address).is_ok());
            debug_assert!(freed, "what is listed lives");
        }
    }

    /// Frees memory of one of these kinds.
    pub(super) fn free(&self, address: u64, kinds: &[Kind]) -> Answer {
        self.claim(address, kinds)?;
        self.end(address);
        Ok(())
    }

    /// Returns the allocations for which `keep` returns true.
    pub(super) fn allocations(&self, keep: impl Fn(&Allocation) -> bool) -> Vec<(u64, Allocation)> {
        let allocations = self.allocations.lock().unwrap_or_else(PoisonError::into_inner);
        allocations
            .iter()
            .filter(|(_, allocation)| keep(allocation))
            .map(|(&address, &a)| (address, a))
            .collect()
    }

    /// Returns the block of any device that contains these bytes, and their offset in the block.
    pub(super) fn find(&self, address: u64, bytes: u64) -> Result<(Arc<Block>, u64), Invalid> {
        let mut why = Invalid::Unallocated { address, bytes };
        for device in &self.devices {
            match device.memory.find(address, bytes) {
                Ok(found) => return Ok(found),
                Err(Invalid::Unallocated { .. }) => {}
                Err(better @ (Invalid::Beyond { .. } | Invalid::Freed { .. })) => why = better,
            }
        }
        Err(why)
    }

    /// Checks that these bytes are memory that a call may access, and reports an error on stderr.
    pub(super) fn check_range(&self, call: &str, address: u64, bytes: u64) -> Answer {
        if bytes == 0 {
            return Ok(());
        }
        self.find(address, bytes).map(|_| ()).map_err(|why| {
            report::say(&format!("{call}: {why}"));
            Code::INVALID_VALUE
        })
    }
}
