#pragma once

#include <functional>
#include <memory>

#include "engine/thread/engine_thread.h"
#include "options.h"

namespace heddle::serve {

inline constexpr int kExitFailed = 1;

/// The server from its first connection to its last.
class Server {
 public:
  /// Loads the model and listens. Throws Error where the model, an adapter or an option is wrong.
  explicit Server(const app::ServeOptions& options);
  /// Serves the engine that `open` gives.
  Server(const app::ServeOptions& options, const std::function<Engine()>& open);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server();

  [[nodiscard]] int port() const;
  [[nodiscard]] EngineThread& engine();
  /// Serves until SIGINT, SIGTERM or `end`. Returns the exit code of the program: 0, or kExitFailed
  /// where the engine has ended by itself, which ends the server.
  int run();
  /// Lets `run` return as a signal does; from any thread.
  void end();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace heddle::serve
