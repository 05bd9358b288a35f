//! Confinement of a process with domains, once it has its devices: the system calls and files that
//! it may still use.

use landlock::{ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr};
use rustix::process::{Resource, Rlimit, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};
use std::collections::BTreeMap;
use std::io;

/// Descriptors that a process has at most.
const FILES_MAX: u64 = 4096;

/// System calls of a loop over shared memory and descriptors that are open, of memory and threads.
const RUNS: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    // Of memory that a neighbour hands over: whether it can be taken away.
    libc::SYS_fstatfs,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_getcpu,
    // Whose what another process of this one's user has sent is, for the thread that closes it.
    libc::SYS_geteuid,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_ioctl,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_prctl,
    libc::SYS_pread64,
    libc::SYS_prlimit64,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_splice,
    libc::SYS_statx,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_uname,
    libc::SYS_write,
    libc::SYS_writev,
    // The C library has every thread do it when one becomes another user.
    libc::SYS_setresuid,
];

#[cfg(target_arch = "x86_64")]
const OF_MACHINE: &[libc::c_long] = &[libc::SYS_arch_prctl, libc::SYS_epoll_wait, libc::SYS_poll];
#[cfg(not(target_arch = "x86_64"))]
const OF_MACHINE: &[libc::c_long] = &[];

/// System calls of devices that open sockets or files, or look at the system, while they run.
const OF_DEVICES: &[libc::c_long] = &[
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_fchmod,
    libc::SYS_flock,
    libc::SYS_getdents64,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_listen,
    libc::SYS_openat,
    libc::SYS_readlinkat,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_umask,
    libc::SYS_unlinkat,
];

/// System calls of devices that some machines have in an older form.
#[cfg(target_arch = "x86_64")]
const OF_DEVICES_HERE: &[libc::c_long] = &[libc::SYS_chmod, libc::SYS_open, libc::SYS_unlink];
#[cfg(not(target_arch = "x86_64"))]
const OF_DEVICES_HERE: &[libc::c_long] = &[libc::SYS_fchmodat];

/// The restrictions of a process.
pub(super) struct Confined {
    filter: BpfProgram,
    /// No file may be opened any more.
    without_files: bool,
}

impl Confined {
    /// For domains that have devices, or for those that have none.
    pub(super) fn new(has_devices: bool) -> io::Result<Self> {
        let (of_devices, here) =
            if has_devices { (OF_DEVICES, OF_DEVICES_HERE) } else { (&[][..], &[][..]) };
        let calls = RUNS.iter().chain(OF_MACHINE).chain(of_devices).chain(here);
        let mut rules: BTreeMap<i64, _> = calls.map(|call| (*call, Vec::new())).collect();
        // A thread may have descriptors of its own, and nothing else of its own.
        let descriptors = SeccompCondition::new(
            0,
            SeccompCmpArgLen::Qword,
            SeccompCmpOp::Eq,
            libc::CLONE_FILES as u64,
        );
        let descriptors = descriptors.and_then(|only| SeccompRule::new(vec![only]));
        rules.insert(libc::SYS_unshare, vec![descriptors.map_err(io::Error::other)?]);
        let refuse = SeccompAction::Errno(libc::EPERM as u32);
        let machine = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
        let filter = SeccompFilter::new(rules, refuse, SeccompAction::Allow, machine);
        let filter = filter.and_then(BpfProgram::try_from).map_err(io::Error::other)?;
        Ok(Self { filter, without_files: !has_devices })
    }

    /// The bounds of the whole process.
    pub(super) fn bound() -> io::Result<()> {
        let bound = |what, most: u64| {
            let limit = Rlimit { current: Some(most), maximum: Some(most) };
            setrlimit(what, limit)
        };
        bound(Resource::Core, 0)?;
        let files = rustix::process::getrlimit(Resource::Nofile).maximum;
        bound(Resource::Nofile, files.unwrap_or(FILES_MAX).min(FILES_MAX))?;
        Ok(())
    }

    /// This thread, and what it makes, has no more than this from now on.
    pub(super) fn enter(&self) -> io::Result<()> {
        if self.without_files {
            // Where the system has no landlock the filter alone keeps files away.
            Ruleset::default()
                .set_compatibility(CompatLevel::BestEffort)
                .handle_access(AccessFs::from_all(ABI::V5))
                .and_then(|rules| rules.create()?.restrict_self())
                .map_err(io::Error::other)?;
        }
        apply_filter(&self.filter).map_err(io::Error::other)
    }
}
