//! Modules and their functions: loading, lookup and attributes.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::code::Code;
use super::context::{Context, one_of};
use super::copy;
use super::entry::{Answer, Out, Text, exports};
use super::facts::Facts;
use super::jit::Options;
use super::report;
use super::state::{Kind, Object};
use crate::ptx;

/// Loaded module.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) context: u64,
    pub(super) handle: u64,
    pub(super) ptx: ptx::Module,
    /// Addresses of the module's variables.
    pub(super) globals: Vec<u64>,
    /// Handles of the functions that a program looked up, by their number.
    functions: Mutex<BTreeMap<usize, u64>>,
}

/// Kernel that a program looked up.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) module: Arc<Module>,
    number: usize,
    /// Maximum bytes of dynamic shared memory, as `cuFuncSetAttribute` set it last.
    shared_max: AtomicU32,
}

impl Function {
    pub(super) fn kernel(&self) -> &ptx::Kernel {
        &self.module.ptx.kernels[self.number]
    }

    /// Returns the registers of a thread. Registers beyond the maximum for the kernel's declared block count
    /// as spilled.
    pub(super) fn registers(&self) -> u32 {
        let most = self.kernel().limits.max_threads.map_or(Facts::THREAD_REGISTERS, Facts::thread_registers);
        self.kernel().registers.clamp(1, most)
    }

    /// Returns the maximum number of threads of a block.
    pub(super) fn block_threads(&self) -> u32 {
        let by_registers = Facts::block_threads(self.registers());
        self.kernel().limits.max_threads.map_or(by_registers, |declared| declared.min(by_registers))
    }

    /// Returns the maximum bytes of dynamic shared memory of a block.
    pub(super) fn shared_max(&self) -> u32 {
        self.shared_max.load(Ordering::Relaxed)
    }

    fn attribute(&self, attribute: i32, arch: u32) -> Answer<i32> {
        let (major, minor) = self.module.ptx.version;
        let value = match attribute {
            0 => self.block_threads(),
            1 => self.kernel().static_shared,
            4 => self.registers(),
            5 => 10 * major + minor,
            6 => arch,
            8 => self.shared_max(),
            9 => return Ok(-1),
            10 => u32::from(self.kernel().limits.explicit_cluster),
            11..=13 => {
                self.kernel().limits.required_cluster.map_or(0, |blocks| blocks[attribute as usize - 11])
            }
            // Constant memory, local memory, the cache mode, non-portable cluster sizes and cluster
            // scheduling are not simulated.
            2 | 3 | 7 | 14 | 15 => 0,
            _ => return Err(Code::INVALID_VALUE),
        };
        Ok(value as i32)
    }

    fn set_attribute(&self, attribute: i32, value: i32, opt_in: u32) -> Answer {
        match attribute {
            8 => {
                let most = opt_in - self.kernel().static_shared.min(opt_in);
                let value =
                    u32::try_from(value).ok().filter(|&value| value <= most).ok_or(Code::INVALID_VALUE)?;
                self.shared_max.store(value, Ordering::Relaxed);
                Ok(())
            }
            // The preferred carveout changes nothing here.
            9 => one_of(value, -1..=100),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

/// Magic bytes of device binaries: ELF files and fat binaries.
const BINARIES: [[u8; 4]; 2] = [*b"\x7fELF", [0x50, 0xed, 0x55, 0xba]];

/// Returns the PTX text of an image.
fn text_of(image: *const c_void) -> Answer<String> {
    if image.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the call's contract is that the pointer points to a text that ends with a NUL, or to a binary,
    // which is longer than four bytes. A text may be shorter, because reading stops at its NUL.
    let text = unsafe {
        let bytes: *const u8 = image.cast();
        let is = |binary: [u8; 4]| (0..4).all(|i| *bytes.add(i) == binary[i]);
        if BINARIES.into_iter().any(is) {
            report::say("only PTX is simulated, and this image is a binary");
            return Err(Code::NO_BINARY_FOR_GPU);
        }
        CStr::from_ptr(image.cast::<c_char>())
    };
    text.to_str().map(str::to_owned).map_err(|_| Code::INVALID_IMAGE)
}

fn load(context: &Context, module: Out<u64>, text: &str, options: &Options) -> Answer {
    if module.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let ptx = options.compile(&context.driver.config, text).map_err(|refused| refused.code)?;
    let globals = ptx.globals.iter().map(|global| global_of(context, global)).collect::<Answer<Vec<_>>>()?;
    let handle = context.driver.insert(|handle| {
        let functions = Mutex::default();
        Object::Module(Arc::new(Module { context: context.handle, handle, ptx, globals, functions }))
    });
    module.set(handle)
}

fn global_of(context: &Context, global: &ptx::Global) -> Answer<u64> {
    let address = context.driver.allocate(context, global.init.len().max(1) as u64, Kind::Global)?;
    let _queues = context.driver.queues();
    copy::write(context.driver, address, &global.init)?;
    Ok(address)
}

fn function_of(context: &Context, module: &Arc<Module>, name: &str) -> Answer<u64> {
    let number = module.ptx.kernels.iter().position(|kernel| kernel.name == name).ok_or(Code::NOT_FOUND)?;
    let mut functions = module.functions.lock().unwrap_or_else(PoisonError::into_inner);
    let make = || {
        let shared_max = AtomicU32::new(Facts::SHARED - module.ptx.kernels[number].static_shared);
        let function = Function { module: Arc::clone(module), number, shared_max };
        context.driver.insert(|_| Object::Function(Arc::new(function)))
    };
    Ok(*functions.entry(number).or_insert_with(make))
}

fn unload(context: &Context, module: u64) -> Answer {
    let module = context.driver.module(module)?;
    // Pending work may launch kernels of the module.
    context.driver.queues().finish_context(context);
    for (&address, global) in module.globals.iter().zip(&module.ptx.globals) {
        debug_assert!(global.align > 0);
        context.driver.free(address, &[Kind::Global])?;
    }
    let handle = module.handle;
    context.driver.remove_if(|object| match object {
        Object::Module(module) => module.handle == handle,
        Object::Function(function) => function.module.handle == handle,
        Object::Context(_) | Object::Stream(_) | Object::Event(_) => false,
    });
    Ok(())
}

exports! {
    /// Loads a module from a file of PTX.
    cuModuleLoad(module: Out<u64>, path: Text) working |context| {
        let text = std::fs::read_to_string(path.read()?).map_err(|_| Code::FILE_NOT_FOUND)?;
        load(context, module, &text, &Options::default())
    };

    /// Loads a module from a text of PTX.
    cuModuleLoadData(module: Out<u64>, image: *const c_void) working |context| {
        load(context, module, &text_of(image)?, &Options::default())
    };

    /// Loads a module from a text of PTX, and writes the compiler's logs.
    cuModuleLoadDataEx(
        module: Out<u64>,
        image: *const c_void,
        count: u32,
        options: *const i32,
        values: *mut *mut c_void,
    ) working |context| {
        // SAFETY: passed on from the caller.
        let options = unsafe { Options::read(count, options, values)? };
        load(context, module, &text_of(image)?, &options)
    };

    /// Unloads a module and its functions.
    cuModuleUnload(module: u64) working |context| unload(context, module);

    /// Returns a kernel of a module.
    cuModuleGetFunction(function: Out<u64>, module: u64, name: Text) working |context| {
        let (module, name) = (context.driver.module(module)?, name.read()?);
        function.set(function_of(context, &module, &name)?)
    };

    /// Returns the address and the bytes of a variable of a module.
    cuModuleGetGlobal_v2(address: Out<u64>, bytes: Out<usize>, module: u64, name: Text) working |context| {
        let (module, name) = (context.driver.module(module)?, name.read()?);
        let number = module.ptx.globals.iter().position(|global| global.name == name).ok_or(Code::NOT_FOUND)?;
        address.offer(module.globals[number]);
        bytes.offer(module.ptx.globals[number].init.len());
        Ok(())
    };

    /// Returns an attribute of a function.
    cuFuncGetAttribute(value: Out<i32>, attribute: i32, function: u64) working |context| {
        let arch = context.driver.config.facts.arch;
        value.set(context.driver.function(function)?.attribute(attribute, arch)?)
    };

    /// Sets the maximum dynamic shared memory of a function, or a preference that changes nothing here.
    cuFuncSetAttribute(function: u64, attribute: i32, value: i32) working |context| {
        let opt_in = context.driver.config.facts.shared_opt_in;
        context.driver.function(function)?.set_attribute(attribute, value, opt_in)
    };

    /// Sets a preference that changes nothing here.
    cuFuncSetCacheConfig(function: u64, config: i32) working |context| {
        context.driver.function(function).and_then(|_| one_of(config, 0..=3))
    };

    /// Sets a preference that changes nothing here.
    cuFuncSetSharedMemConfig(function: u64, config: i32) working |context| {
        context.driver.function(function).and_then(|_| one_of(config, 0..=2))
    };

    /// Returns the module of a function.
    cuFuncGetModule(module: Out<u64>, function: u64) working |context| {
        module.set(context.driver.function(function)?.module.handle)
    };
}
