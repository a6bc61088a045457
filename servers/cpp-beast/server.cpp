// Boost.Beast on Asio's coroutines. Environment: HOST, PORT, THREADS; NO_DELAY (anything): TCP_NODELAY is set.

#include <boost/asio.hpp>
#include <boost/beast.hpp>

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <vector>

namespace {

namespace beast = boost::beast;
namespace http = beast::http;
namespace net = boost::asio;
using net::awaitable;
using net::use_awaitable;
using net::ip::tcp;
using Request = http::request<http::string_body>;
using Response = http::response<http::string_body>;
using WebSocket = beast::websocket::stream<beast::tcp_stream>;

awaitable<void> echo(WebSocket websocket) {
    beast::flat_buffer message;
    for (;;) {
        co_await websocket.async_read(message, use_awaitable);
        websocket.text(websocket.got_text());
        co_await websocket.async_write(message.data(), use_awaitable);
        message.consume(message.size());
    }
}

awaitable<void> ping(WebSocket websocket) {
    beast::flat_buffer message;
    for (;;) {
        co_await websocket.async_read(message, use_awaitable);
        if (websocket.got_text() && beast::buffers_to_string(message.data()) == "Ping") {
            co_await websocket.async_write(net::buffer("Pong", 4), use_awaitable);
        }
        message.consume(message.size());
    }
}

/// A connection of /push; what it sends is text, as is the default. Everything but `send` runs on the connection's own strand.
struct Member : std::enable_shared_from_this<Member> {
    explicit Member(WebSocket &&connected) : websocket(std::move(connected)) {}

    /// From any thread: nobody waits for this member, its own strand writes.
    void send(const std::shared_ptr<const std::string> &token) {
        net::post(websocket.get_executor(), [self = shared_from_this(), token] {
            self->tokens.push_back(token);
            self->write_unless_writing();
        });
    }

    void write_unless_writing() {
        if (!websocket.is_open() || writing || tokens.empty()) return;
        writing = true;
        net::co_spawn(websocket.get_executor(), write(shared_from_this()), net::detached);
    }

    static awaitable<void> write(std::shared_ptr<Member> self) {
        using namespace std::chrono;
        for (; !self->tokens.empty(); self->tokens.pop_front()) {
            auto micros = duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
            std::string text = std::to_string(micros) + " " + *self->tokens.front();
            co_await self->websocket.async_write(net::buffer(text), use_awaitable);
        }
        self->writing = false;
    }

    WebSocket websocket;
    std::deque<std::shared_ptr<const std::string>> tokens;
    bool writing = false;
};

std::mutex mutex;
std::unordered_set<std::shared_ptr<Member>> members;

void broadcast(std::string_view token) {
    auto shared = std::make_shared<const std::string>(token);
    std::lock_guard lock(mutex);
    for (const auto &member : members) member->send(shared);
}

awaitable<void> read(std::shared_ptr<Member> self, Request request) {
    constexpr std::string_view command = "broadcast ";
    co_await self->websocket.async_accept(request, use_awaitable);
    self->write_unless_writing();
    beast::flat_buffer message;
    for (;;) {
        co_await self->websocket.async_read(message, use_awaitable);
        std::string text = beast::buffers_to_string(message.data());
        if (self->websocket.got_text() && text.starts_with(command)) broadcast(text.substr(command.size()));
        message.consume(message.size());
    }
}

/// It joins before the 101 is sent: whoever has seen that is a member.
void push(WebSocket websocket, Request request) {
    auto member = std::make_shared<Member>(std::move(websocket));
    std::unique_lock lock(mutex);
    members.insert(member);
    lock.unlock();
    auto leave = [member](std::exception_ptr) {
        std::lock_guard lock(mutex);
        members.erase(member);
    };
    net::co_spawn(member->websocket.get_executor(), read(member, std::move(request)), leave);
}

Response doc(const Request &request) {
    constexpr std::string_view path = "/doc?size=";
    Response response(http::status::not_found, request.version());
    std::string_view target(request.target().data(), request.target().size());
    size_t size = 0;
    if (target.starts_with(path)) {
        target.remove_prefix(path.size());
        auto [end, error] = std::from_chars(target.begin(), target.end(), size);
        bool is_number = error == std::errc() && end == target.end();
        response.result(is_number ? http::status::ok : http::status::bad_request);
        response.body().assign(is_number ? size : 0, '.');
    }
    response.set(http::field::content_type, "text/html");
    response.keep_alive(request.keep_alive());
    response.prepare_payload();
    return response;
}

awaitable<void> serve(beast::tcp_stream stream) {
    beast::flat_buffer buffer;
    for (;;) {
        Request request;
        co_await http::async_read(stream, buffer, request, use_awaitable);
        if (beast::websocket::is_upgrade(request)) {
            WebSocket websocket(std::move(stream));
            if (request.target() == "/push") {
                push(std::move(websocket), std::move(request));
            } else if (request.target() == "/echo") {
                co_await websocket.async_accept(request, use_awaitable);
                co_await echo(std::move(websocket));
            } else if (request.target() == "/ping") {
                co_await websocket.async_accept(request, use_awaitable);
                co_await ping(std::move(websocket));
            }
            co_return;
        }
        Response response = doc(request);
        co_await http::async_write(stream, response, use_awaitable);
        if (!response.keep_alive()) {
            stream.socket().shutdown(tcp::socket::shutdown_send);
            co_return;
        }
    }
}

awaitable<void> listen(net::io_context &context, tcp::endpoint endpoint) {
    tcp::acceptor acceptor(context, endpoint);
    bool no_delay = std::getenv("NO_DELAY") != nullptr;
    for (;;) {
        tcp::socket socket(net::make_strand(context));
        auto [error] = co_await acceptor.async_accept(socket, net::as_tuple(use_awaitable));
        if (!error) {
            beast::error_code gone; // as the client may be already; `serve` will see it
            if (no_delay) socket.set_option(tcp::no_delay(true), gone);
            auto executor = socket.get_executor();
            // What goes wrong on a connection ends it, no more.
            net::co_spawn(executor, serve(beast::tcp_stream(std::move(socket))), net::detached);
        } else {
            // Out of file descriptors, most likely: some connection has to close first.
            co_await net::steady_timer(context, std::chrono::milliseconds(10)).async_wait(use_awaitable);
        }
    }
}

std::string variable(const char *name) {
    const char *value = std::getenv(name);
    if (value == nullptr) throw std::runtime_error(std::string(name) + " is not set");
    return value;
}

} // namespace

int main(int count, char **arguments) {
    if (count == 2 && std::string_view(arguments[1]) == "--version") {
        std::cout << "Boost " << BOOST_VERSION / 100000 << '.' << BOOST_VERSION / 100 % 1000 << '.' << BOOST_VERSION % 100;
        std::cout << ", " << BOOST_BEAST_VERSION_STRING << ", g++ " __VERSION__ "\n";
        return 0;
    }
    int threads = std::stoi(variable("THREADS"));
    net::io_context context(threads);
    tcp::endpoint endpoint(net::ip::make_address(variable("HOST")), static_cast<unsigned short>(std::stoi(variable("PORT"))));
    net::co_spawn(context, listen(context, endpoint), [](std::exception_ptr error) { std::rethrow_exception(error); });
    std::vector<std::jthread> workers;
    for (int number = 0; number < threads; number++) workers.emplace_back([&context] { context.run(); });
}
