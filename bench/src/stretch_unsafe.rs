//! Instruments that measure a stretch of a program: the processor's time counter, and callgrind,
//! which is told to count from here on or to cease (Valgrind manual, "Client requests").

/// Whether there is a way to tell it on this machine.
pub(crate) const IS_KNOWN: bool = cfg!(all(target_arch = "x86_64", target_os = "linux"));

/// `CALLGRIND_TOGGLE_COLLECT`: the second request of the tool "CT".
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
const TOGGLE: u64 = (b'C' as u64) << 24 | (b'T' as u64) << 16 | 2;

/// The processor's counter, which goes on at one rate; nanoseconds where it is not known.
#[inline]
pub(crate) fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every processor of this architecture has the instruction, and Linux lets programs
        // use it; it reads no memory.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        use std::sync::OnceLock;
        use std::time::Instant;
        static BEGUN: OnceLock<Instant> = OnceLock::new();
        BEGUN.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

/// Has callgrind begin to count, or cease; without it, nothing.
#[inline]
pub(crate) fn toggle() {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        let request = [TOGGLE, 0, 0, 0, 0, 0];
        // SAFETY: the four rotations turn `rdi` by 128 bits in all, and so not at all, and
        // exchanging a register with itself does nothing. Under valgrind the sequence hands it the
        // address of six words, in `rax`, which live beyond it and are read alone; the answer is
        // put into `rdx`, which is said to be overwritten.
        unsafe {
            core::arch::asm!(
                "rol rdi, 3",
                "rol rdi, 13",
                "rol rdi, 61",
                "rol rdi, 51",
                "xchg rbx, rbx",
                in("rax") request.as_ptr(),
                inout("rdx") 0_u64 => _,
                options(nostack),
            );
        }
    }
}
