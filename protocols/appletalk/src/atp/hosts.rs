//! Accounts between a responder and hosts: a request proves no source, so that replies to a forged
//! one go to a host that asked for nothing, and are remembered for nothing.

use alloc::vec::Vec;
use core::time::Duration;

/// Hosts that have an account.
const HOSTS_MAX: usize = 128;
/// Hosts among them that may be known by their releases.
const KNOWN_MAX: usize = 64;
/// Time for which a host is known after a release.
const KNOWN: Duration = Duration::from_secs(60);
/// Transactions of a known host that are remembered, whatever others have.
pub(super) const KNOWN_EACH: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Account {
    host: u32,
    /// Time until which the host is known.
    known: Duration,
    /// Packets beyond the first of each reply, less those of replies that were released, as of
    /// `at`.
    spent: u32,
    at: Duration,
}

/// The accounts of hosts. One without an account owes nothing and is not known.
#[derive(Clone, Debug, Default)]
pub(super) struct Hosts {
    /// Packets a second that a host may be sent so; as many at once. 0: no bound.
    rate: u32,
    /// In rising order of the host.
    accounts: Vec<Account>,
}

impl Account {
    /// Debt of the host by now.
    fn owes(&self, now: Duration, rate: u32) -> u32 {
        let passed = now.saturating_sub(self.at).as_millis().min(60_000) as u64;
        let paid = passed * u64::from(rate) / 1000;
        self.spent.saturating_sub(paid.try_into().unwrap_or(u32::MAX))
    }
}

impl Hosts {
    pub(super) const fn new(rate: u32) -> Self {
        Self { rate, accounts: Vec::new() }
    }

    fn find(&self, host: u32) -> Result<usize, usize> {
        self.accounts.binary_search_by_key(&host, |account| account.host)
    }

    fn get(&self, host: u32) -> Option<&Account> {
        self.accounts.get(self.find(host).ok()?)
    }

    /// Whether more may be sent to a host that it did not release.
    pub(super) fn may(&self, host: u32, now: Duration) -> bool {
        let owes = |account: &Account| account.owes(now, self.rate);
        self.rate == 0 || self.get(host).is_none_or(|account| owes(account) < self.rate)
    }

    /// Whether a host has released something lately.
    pub(super) fn is_known(&self, host: u32, now: Duration) -> bool {
        self.get(host).is_some_and(|account| account.known > now)
    }

    /// The account of a host: at the bound that of one which owes least and is not known gives way.
    fn account(&mut self, host: u32, now: Duration) -> Option<&mut Account> {
        let rate = self.rate;
        if self.find(host).is_err() {
            if self.accounts.len() >= HOSTS_MAX {
                let all = self.accounts.iter().enumerate();
                let idle = all.filter(|(_, account)| account.known <= now);
                let (least, _) = idle.min_by_key(|(_, account)| account.owes(now, rate))?;
                self.accounts.remove(least);
            }
            let at = self.find(host).unwrap_or_else(|at| at);
            let account = Account { host, known: Duration::ZERO, spent: 0, at: now };
            self.accounts.insert(at, account);
        }
        let at = self.find(host).ok()?;
        self.accounts.get_mut(at)
    }

    /// Takes the packets that go to a host off its allowance.
    pub(super) fn spend(&mut self, host: u32, packets: usize, now: Duration) {
        let rate = self.rate;
        if packets == 0 || rate == 0 {
            return;
        }
        if let Some(account) = self.account(host, now) {
            let owes = account.owes(now, rate);
            (account.spent, account.at) = (owes.saturating_add(packets as u32), now);
        }
    }

    /// A host has released a reply with so many packets beyond the first.
    pub(super) fn release(&mut self, host: u32, packets: usize, now: Duration) {
        let rate = self.rate;
        let known = self.accounts.iter().filter(|account| account.known > now).count();
        let Some(account) = self.account(host, now) else { return };
        let owes = account.owes(now, rate);
        (account.spent, account.at) = (owes.saturating_sub(packets as u32), now);
        // One that is known stays so as long as it goes on; there are no more of them than may be.
        if account.known > now || known < KNOWN_MAX {
            account.known = now.saturating_add(KNOWN);
        }
    }
}
