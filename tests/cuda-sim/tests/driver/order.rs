//! Streams and events order work as documented, even if the driver runs work as late as it may.

use cuda_sim::driver::alloc::*;
use cuda_sim::driver::copy::*;
use cuda_sim::driver::entry::{Host, Out};
use cuda_sim::driver::event::*;
use cuda_sim::driver::stream::*;

use super::{Context, call, done, free, in_child, made, upload};

/// Pinned memory, so that copies to it are asynchronous and their state can be observed.
struct Pinned(Host);

impl Pinned {
    fn new() -> Pinned {
        let mut place = Host(std::ptr::null_mut());
        done!(cuMemAllocHost_v2(Out::to(&mut place), 4));
        let pinned = Pinned(place);
        pinned.set(0);
        pinned
    }

    fn set(&self, value: u32) {
        // SAFETY: the four bytes come from the driver, and no work on them runs.
        unsafe { self.0.0.cast::<u32>().write(value) };
    }

    fn get(&self) -> u32 {
        // SAFETY: as above.
        unsafe { self.0.0.cast::<u32>().read() }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let code = call!(cuMemFreeHost(self.0));
        assert!(code == 0 || std::thread::panicking(), "{code}");
    }
}

#[test]
fn work_is_done_when_it_is_waited_for() {
    let _context = Context::new();
    let (a, to) = (upload(&[7]), Pinned::new());
    let stream: u64 = made!(cuStreamCreate(1));
    done!(cuMemcpyDtoHAsync_v2(to.0, a, 4, stream));
    assert_eq!(to.get(), 0, "nothing waited for it");
    done!(cuStreamSynchronize(stream));
    assert_eq!(to.get(), 7);
    free(a);
}

#[test]
fn pinned_memory_is_read_late_and_other_memory_at_once() {
    let _context = Context::new();
    let (a, b, from) = (upload(&[0]), upload(&[0]), Pinned::new());
    let stream: u64 = made!(cuStreamCreate(1));
    let mut other = 1_u32;
    from.set(1);
    done!(cuMemcpyHtoDAsync_v2(a, from.0, 4, stream));
    done!(cuMemcpyHtoDAsync_v2(b, Host((&raw mut other).cast()), 4, stream));
    from.set(2);
    other = 2;
    done!(cuStreamSynchronize(stream));
    assert_eq!((super::download(a, 1), super::download(b, 1), other), (vec![2], vec![1], 2));
    free(a);
    free(b);
}

#[test]
fn a_copy_to_memory_that_is_not_pinned_is_waited_for() {
    let _context = Context::new();
    let (a, stream): (_, u64) = (upload(&[0]), made!(cuStreamCreate(1)));
    let mut to = 0_u32;
    done!(cuMemsetD32Async(a, 5, 1, stream));
    done!(cuMemcpyDtoHAsync_v2(Host((&raw mut to).cast()), a, 4, stream));
    assert_eq!(to, 5);
    free(a);
}

#[test]
fn memory_is_freed_after_the_work_before() {
    let _context = Context::new();
    let (a, b, stream): (_, _, u64) = (upload(&[7]), upload(&[8]), made!(cuStreamCreate(1)));
    let (to, other) = (Pinned::new(), Pinned::new());
    done!(cuMemcpyDtoHAsync_v2(to.0, a, 4, stream));
    free(a);
    assert_eq!(to.get(), 7, "the device's");
    done!(cuMemcpyDtoHAsync_v2(to.0, b, 4, stream));
    drop(other);
    assert_eq!(to.get(), 8, "the host's");
    free(b);
}

#[test]
fn queries_let_work_go_on() {
    let _context = Context::new();
    let (a, stream): (_, u64) = (upload(&[0]), made!(cuStreamCreate(1)));
    done!(cuMemsetD32Async(a, 1, 1, stream));
    done!(cuMemsetD32Async(a, 2, 1, stream));
    assert_eq!(call!(cuStreamQuery(stream)), 600);
    assert_eq!(call!(cuStreamQuery(stream)), 0);
    assert_eq!(super::download(a, 1), [2]);
    free(a);
}

#[test]
fn a_stream_waits_for_an_event_of_another() {
    let _context = Context::new();
    let (a, to) = (upload(&[0]), Pinned::new());
    let (first, second): (u64, u64) = (made!(cuStreamCreate(1)), made!(cuStreamCreate(1)));
    let event: u64 = made!(cuEventCreate(2));
    done!(cuMemsetD32Async(a, 5, 1, first));
    done!(cuEventRecord(event, first));
    done!(cuStreamWaitEvent(second, event, 0));
    done!(cuMemcpyDtoHAsync_v2(to.0, a, 4, second));
    done!(cuStreamSynchronize(second));
    assert_eq!(to.get(), 5);
    // Without the event there is no order, and the work of the other stream has not run.
    done!(cuMemsetD32Async(a, 6, 1, first));
    done!(cuMemcpyDtoHAsync_v2(to.0, a, 4, second));
    done!(cuStreamSynchronize(second));
    assert_eq!(to.get(), 5);
    done!(cuEventDestroy_v2(event));
    free(a);
}

#[test]
fn the_stream_for_null_comes_between_those_that_block() {
    let _context = Context::new();
    let (a, to) = (upload(&[0]), Pinned::new());
    let (blocking, free_running): (u64, u64) = (made!(cuStreamCreate(0)), made!(cuStreamCreate(1)));
    done!(cuMemsetD32Async(a, 1, 1, blocking));
    done!(cuMemcpyDtoHAsync_v2(to.0, a, 4, 0));
    done!(cuMemsetD32Async(a, 2, 1, blocking));
    done!(cuStreamSynchronize(0));
    assert_eq!(to.get(), 1);
    done!(cuMemcpyDtoHAsync_v2(to.0, a, 4, free_running));
    done!(cuStreamSynchronize(free_running));
    assert_eq!(to.get(), 1, "it waits for none");
    done!(cuMemcpyDtoHAsync_v2(to.0, a, 4, 0));
    done!(cuStreamSynchronize(0));
    assert_eq!(to.get(), 2);
    free(a);
}

#[test]
fn events_tell_time() {
    let _context = Context::new();
    let (a, stream): (_, u64) = (upload(&[0]), made!(cuStreamCreate(0)));
    let (start, end): (u64, u64) = (made!(cuEventCreate(0)), made!(cuEventCreate(0)));
    let mut time = -1.0;
    done!(cuEventQuery(start));
    assert_eq!(call!(cuEventElapsedTime(Out::to(&mut time), start, end)), 400, "never recorded");
    done!(cuEventRecord(start, stream));
    done!(cuMemsetD32Async(a, 1, 1, stream));
    done!(cuEventRecord(end, stream));
    assert_eq!(call!(cuEventElapsedTime(Out::to(&mut time), start, end)), 600);
    assert_eq!(call!(cuEventQuery(end)), 600);
    done!(cuEventSynchronize(end));
    done!(cuEventElapsedTime(Out::to(&mut time), start, end));
    assert!((0.0..1e5).contains(&time), "{time}");
    let untimed: u64 = made!(cuEventCreate(2));
    done!(cuEventRecord(untimed, stream));
    done!(cuEventSynchronize(untimed));
    assert_eq!(call!(cuEventElapsedTime(Out::to(&mut time), start, untimed)), 400);
    free(a);
}

#[test]
fn memory_freed_in_order_is_there_until_then() {
    let _context = Context::new();
    let (b, stream): (_, u64) = (upload(&[3]), made!(cuStreamCreate(1)));
    let a: u64 = made!(cuMemAllocAsync(4, stream));
    done!(cuMemcpyDtoDAsync_v2(a, b, 4, stream));
    done!(cuMemcpyDtoDAsync_v2(b, a, 4, stream));
    done!(cuMemFreeAsync(a, stream));
    done!(cuStreamSynchronize(stream));
    assert_eq!(super::download(b, 1), [3]);
    assert_eq!(call!(cuMemFreeAsync(a, stream)), 1);
    free(b);
}

#[test]
fn memory_that_cannot_be_freed_in_order_is_refused_at_once() {
    let test = "order::memory_that_cannot_be_freed_in_order_is_refused_at_once";
    let check = |stderr: &str| assert!(!stderr.contains("never freed"), "{stderr}");
    if in_child(test, &[], check) {
        let context = Context::new();
        let (a, pinned, stream): (_, _, u64) = (upload(&[3, 4]), Pinned::new(), made!(cuStreamCreate(1)));
        assert_eq!(call!(cuMemFreeAsync(a + 4, stream)), 1, "not a start");
        assert_eq!(call!(cuMemFreeAsync(pinned.0.0 as u64, stream)), 1, "the host's");
        assert_eq!(call!(cuMemFreeAsync(a, context.0)), 400, "a context is no stream");
        done!(cuMemFreeAsync(a, stream));
        assert_eq!(call!(cuMemFreeAsync(a, stream)), 1, "twice");
        done!(cuStreamSynchronize(stream));
        let b = upload(&[5]);
        done!(cuMemFreeAsync(b, stream));
        assert_eq!(call!(cuMemFree_v2(b)), 1, "twice, in two ways");
        done!(cuStreamSynchronize(stream));
        drop(pinned);
        // The free never runs, and is no leak.
        done!(cuMemFreeAsync(upload(&[6]), stream));
    }
}

#[test]
fn memory_freed_in_order_can_be_allocated_again() {
    let test = "order::memory_freed_in_order_can_be_allocated_again";
    if in_child(test, &[("CUDA_SIM_MEMORY", "1048576")], |_| ()) {
        let _context = Context::new();
        let (first, second): (u64, u64) = (made!(cuStreamCreate(1)), made!(cuStreamCreate(1)));
        for stream in [first, first, first, second, first] {
            let a: u64 = made!(cuMemAllocAsync(600 << 10, stream));
            done!(cuMemsetD32Async(a, 1, 4, stream));
            done!(cuMemFreeAsync(a, stream));
        }
        let a: u64 = made!(cuMemAllocAsync(600 << 10, first));
        assert_eq!(call!(cuMemAllocAsync(Out::to(&mut 0), 600 << 10, first)), 2, "nothing frees it");
        free(a);
    }
}

#[test]
fn a_long_queue_is_worked_off() {
    let _context = Context::new();
    let (a, stream): (_, u64) = (upload(&[0]), made!(cuStreamCreate(1)));
    for i in 0..2000 {
        done!(cuMemsetD32Async(a, i, 1, stream));
    }
    done!(cuStreamSynchronize(stream));
    assert_eq!(super::download(a, 1), [1999]);
    free(a);
}
