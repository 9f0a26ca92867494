//! Event loops of libraries, and what they have run.

use super::libraries::begins_with;

/// A library's event loop, and the functions of it that have callbacks run. It waits for events in others.
struct Loop {
    name: &'static str,
    runs: &'static [&'static str],
    /// Functions nearer to the callback that tell it from a wait for events in the same function.
    calls: &'static [&'static str],
}

const LOOPS: [Loop; 12] = [
    Loop { name: "asyncio", runs: &["Handle._run (events.py:", "_run (events.py:"], calls: &[] },
    Loop {
        name: "Node",
        runs: &["uv_run"],
        calls: &["Builtins_JSEntry", "node::InternalMakeCallback", "node::MakeCallback"],
    },
    Loop {
        name: "tokio",
        runs: &["tokio::runtime::scheduler::"],
        calls: &["tokio::runtime::task::", "tokio::runtime::coop::", "tokio::task::coop::"],
    },
    Loop {
        name: "Netty",
        runs: &[
            "io.netty.channel.nio.NioEventLoop.processSelectedKey",
            "io.netty.channel.epoll.EpollEventLoop.processReady",
            "io.netty.util.concurrent.AbstractEventExecutor.safeExecute",
            "io.netty.util.concurrent.AbstractEventExecutor.runTask",
        ],
        calls: &[],
    },
    Loop { name: "libevent", runs: &["event_process_active"], calls: &[] },
    Loop { name: "libev", runs: &["ev_invoke_pending"], calls: &[] },
    Loop { name: "GLib", runs: &["g_main_dispatch"], calls: &[] },
    Loop {
        name: "Asio",
        runs: &[
            "boost::asio::detail::scheduler::do_run_one",
            "asio::detail::scheduler::do_run_one",
            "boost::asio::detail::scheduler_operation::complete",
        ],
        calls: &["boost::asio::detail::completion_handler", "asio::detail::completion_handler"],
    },
    Loop { name: "nginx", runs: &["ngx_event_process_posted", "ngx_http_process_request"], calls: &[] },
    // Servers that answer in the thread that takes the requests.
    Loop {
        name: "Java's HttpServer",
        runs: &["sun.net.httpserver.ServerImpl$DefaultExecutor.execute"],
        calls: &["com.sun.net.httpserver.Filter$Chain.doFilter"],
    },
    Loop {
        name: "socketserver",
        runs: &[
            "BaseServer._handle_request_noblock (socketserver.py:",
            "_handle_request_noblock (socketserver.py:",
        ],
        calls: &["BaseServer.finish_request (socketserver.py:", "finish_request (socketserver.py:"],
    },
    Loop {
        name: "Twisted",
        runs: &[
            "_SignalReactorMixin.mainLoop (base.py:",
            "ReactorBase.mainLoop (base.py:",
            "mainLoop (base.py:",
        ],
        calls: &[
            "ReactorBase.runUntilCurrent (base.py:",
            "runUntilCurrent (base.py:",
            "PosixReactorBase._doReadOrWrite (",
            "_PollLikeMixin._doReadOrWrite (posixbase.py:",
            "_doReadOrWrite (posixbase.py:",
        ],
    },
];

/// The loop that runs a callback on a stack, innermost function first.
pub(super) fn runs_callback(user: &[&str]) -> Option<&'static str> {
    let one = |of: &Loop| {
        let at = user.iter().rposition(|frame| begins_with(frame, of.runs))?;
        let calls = of.calls.is_empty() || user[..at].iter().any(|frame| begins_with(frame, of.calls));
        calls.then_some(of.name)
    };
    LOOPS.iter().find_map(one)
}
