// µWebSockets: an event loop a thread, all listening on one port. Environment: HOST, PORT, THREADS.

#include <App.h>

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <latch>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <vector>

namespace {

struct Nothing {};
using WebSocket = uWS::WebSocket<false, true, Nothing>;

constexpr unsigned LARGEST_MESSAGE = 16 << 20;
constexpr unsigned MOST_UNSENT = 64 << 20;

/// The members of /push whose connections belong to this thread's loop.
thread_local std::unordered_set<WebSocket *> members;
/// Every thread's loop; complete before the first of them listens.
std::vector<uWS::Loop *> loops;

uWS::App::WebSocketBehavior<Nothing> behavior() {
    return {
        .maxPayloadLength = LARGEST_MESSAGE,
        .idleTimeout = 0,
        .maxBackpressure = MOST_UNSENT,
        // With pings an idle timeout of 0 would come out as four minutes.
        .sendPingsAutomatically = false,
    };
}

uWS::App::WebSocketBehavior<Nothing> echo() {
    auto echo = behavior();
    echo.message = [](WebSocket *websocket, std::string_view message, uWS::OpCode opcode) {
        websocket->send(message, opcode);
    };
    return echo;
}

uWS::App::WebSocketBehavior<Nothing> ping() {
    auto ping = behavior();
    ping.message = [](WebSocket *websocket, std::string_view message, uWS::OpCode opcode) {
        if (opcode == uWS::TEXT && message == "Ping") websocket->send("Pong", uWS::TEXT);
    };
    return ping;
}

void send_to_members(const std::string &token) {
    using namespace std::chrono;
    for (WebSocket *member : members) {
        auto micros = duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
        member->send(std::to_string(micros) + " " + token, uWS::TEXT);
    }
}

uWS::App::WebSocketBehavior<Nothing> push() {
    auto push = behavior();
    push.open = [](WebSocket *websocket) { members.insert(websocket); };
    push.close = [](WebSocket *websocket, int, std::string_view) { members.erase(websocket); };
    push.message = [](WebSocket *, std::string_view message, uWS::OpCode opcode) {
        constexpr std::string_view command = "broadcast ";
        if (opcode != uWS::TEXT || !message.starts_with(command)) return;
        std::string token(message.substr(command.size()));
        // A socket may only be touched by its own loop: the others are asked to send to theirs.
        for (uWS::Loop *loop : loops) {
            if (loop != uWS::Loop::get()) loop->defer([token] { send_to_members(token); });
        }
        send_to_members(token);
    };
    return push;
}

void doc(uWS::HttpResponse<false> *response, uWS::HttpRequest *request) {
    std::string_view text = request->getQuery("size");
    size_t size = 0;
    auto [end, error] = std::from_chars(text.begin(), text.end(), size);
    if (error != std::errc() || end != text.end()) {
        response->writeStatus("400 Bad Request")->end();
        return;
    }
    response->writeHeader("Content-Type", "text/html")->end(std::string(size, '.'));
}

std::string variable(const char *name) {
    const char *value = std::getenv(name);
    if (value == nullptr) {
        std::cerr << name << " is not set\n";
        std::exit(1);
    }
    return value;
}

void serve(size_t number, std::latch &loops_are_known) {
    uWS::App app;
    loops[number] = uWS::Loop::get();
    loops_are_known.arrive_and_wait();
    app.get("/doc", doc)
        .ws<Nothing>("/echo", echo())
        .ws<Nothing>("/ping", ping())
        .ws<Nothing>("/push", push())
        .listen(variable("HOST"), std::stoi(variable("PORT")), [](us_listen_socket_t *listening) {
            if (listening != nullptr) return;
            std::cerr << "the port is not free\n";
            std::exit(1);
        });
    app.run();
}

} // namespace

int main(int count, char **arguments) {
    if (count == 2 && std::string_view(arguments[1]) == "--version") {
        std::cout << "uWebSockets 20, from " SOURCES ", g++ " __VERSION__ "\n";
        return 0;
    }
    size_t threads = std::stoul(variable("THREADS"));
    loops.resize(threads);
    std::latch loops_are_known(static_cast<std::ptrdiff_t>(threads));
    std::vector<std::jthread> running;
    for (size_t number = 0; number < threads; number++) {
        running.emplace_back(serve, number, std::ref(loops_are_known));
    }
}
