//! The questions that several protocols share, as a table: what an address space looks a question
//! up in that came from another one.

use crate::control::{
    AlertRouters, ClaimHost, DeliverError, HostConflict, IsGroup, IsLocalHost, IsOutstanding,
    JoinGroup, KeepWhole, LeaveGroup, LinkType, MaxPacket, MinPacket, MyEther, MyHost, MyPort,
    NetworkError, OptPacket, PeerEther, PeerHost, PeerPort, PeerProved, PseudoHeader,
    RegisterErrorProtocol, Resolve, SendError, ServesPort, SpecificDestination, TellArrivals,
    TryOpen, WireRoom,
};
use crate::group::{
    Context, IsStable, Leave, Leaves, MaskIn, MaskOut, MemberAt, MemberState, MyMember, OrderOf,
    Outstanding, PlaceOf, SendNull, TakeMembers, TakeNulls, TakeOwn, TakeViews, View,
};
use crate::net::appletalk::{
    CableChanged, ClaimNode, DdpCable, DdpEnds, DdpRoutes, NodeClaimed, SetCable, SetRouter,
    SetRoutes, ZoneNets,
};
use crate::net::drop_sources::ListDropSources;
use crate::net::groups::{GroupChanged, JoinHost, LeaveHost, WatchGroups, WatchedLink};
use crate::net::moving::{EndsFailed, GiveState, HalfOpen, KeepEnds, TakeState};
use crate::net::names::{NbpLookup, NbpRegister};
use crate::net::neighbour::{
    ArpExchange, ArpReply, HostAt, HostChanged, HostRoute, PeerOnLink, RunsVirtual, SendArpReply,
    SubscribeType, WatchHosts, WayChanged,
};
use crate::net::stream::{
    CarriesRecords, StreamAbort, StreamConnected, StreamConsumed, StreamCredit, StreamEndRecord,
    StreamInfo, StreamNotice, StreamRoom, StreamSet, StreamSetNext, StreamSettled, StreamShutdown,
    StreamSoftError, StreamSpace, StreamUse,
};
use crate::net::template::Headers;
use crate::rpc::auth::{IssueShorthand, TakeShorthand};
use crate::rpc::call::{
    CallsAtOnce, CancelCall, GathersReplies, LargestPush, LargestReply, MyObject, MyProcedure,
    NeedsPseudoHeader, UsualTransaction,
};
use crate::rpc::invoke::{AskGuards, Guard, ProcessRuns, ProgramEnded};
use crate::rpc::onc::{CarriesCredentials, MyProgram};
use crate::rpc::retransmit::{AskCopy, FreeCopy, LastCopy};
use crate::wire::offload::Offloads;
use xk_core::control::{Describe, ListMaps, ListSessions, QuestionType, Report};

macro_rules! table {
    ($($type:ident),* $(,)?) => {
        /// Every question of `xk-core` and of this crate. Those of one protocol alone are in its
        /// entry ([`own_question`](xk_core::control::own_question)).
        pub static SHARED: &[QuestionType] = &[$( QuestionType::of::<$type>() ),*];
    };
}

table![
    Describe,
    ListMaps,
    ListSessions,
    Report,
    ClaimHost,
    DeliverError,
    HostConflict,
    IsGroup,
    IsLocalHost,
    IsOutstanding,
    JoinGroup,
    AlertRouters,
    KeepWhole,
    LeaveGroup,
    LinkType,
    MaxPacket,
    MinPacket,
    MyEther,
    MyHost,
    MyPort,
    NetworkError,
    OptPacket,
    PeerEther,
    PeerHost,
    PeerPort,
    PeerProved,
    PseudoHeader,
    RegisterErrorProtocol,
    Resolve,
    SendError,
    ServesPort,
    SpecificDestination,
    TellArrivals,
    Context,
    IsStable,
    Leave,
    Leaves,
    MaskIn,
    MaskOut,
    MemberAt,
    MemberState,
    MyMember,
    OrderOf,
    Outstanding,
    PlaceOf,
    SendNull,
    TakeMembers,
    TakeNulls,
    TakeOwn,
    TakeViews,
    View,
    CableChanged,
    NbpLookup,
    NbpRegister,
    ClaimNode,
    DdpCable,
    DdpEnds,
    DdpRoutes,
    ZoneNets,
    NodeClaimed,
    SetCable,
    SetRouter,
    SetRoutes,
    ArpExchange,
    ArpReply,
    HostAt,
    HostChanged,
    HostRoute,
    PeerOnLink,
    RunsVirtual,
    SendArpReply,
    SubscribeType,
    WatchHosts,
    WayChanged,
    WireRoom,
    TryOpen,
    GiveState,
    KeepEnds,
    EndsFailed,
    TakeState,
    HalfOpen,
    CarriesRecords,
    StreamAbort,
    StreamConnected,
    StreamConsumed,
    StreamEndRecord,
    StreamInfo,
    StreamNotice,
    StreamCredit,
    StreamSettled,
    StreamRoom,
    StreamSet,
    StreamSetNext,
    StreamShutdown,
    StreamSoftError,
    StreamSpace,
    StreamUse,
    ListDropSources,
    JoinHost,
    LeaveHost,
    WatchGroups,
    WatchedLink,
    GroupChanged,
    Headers,
    IssueShorthand,
    TakeShorthand,
    CallsAtOnce,
    CancelCall,
    GathersReplies,
    LargestPush,
    LargestReply,
    MyObject,
    MyProcedure,
    NeedsPseudoHeader,
    UsualTransaction,
    AskGuards,
    Guard,
    ProcessRuns,
    ProgramEnded,
    AskCopy,
    FreeCopy,
    LastCopy,
    CarriesCredentials,
    MyProgram,
    Offloads,
];
