#include "engine/service.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <spdlog/spdlog.h>

#include "heddle/core/error.h"

#include "api/api_error.h"
#include "memory.h"

namespace heddle::serve {
namespace {

std::string adapter_of(const Request& request) {
  if (request.adapters.empty()) return request.adapter;
  std::string all;
  for (const AdapterWeight& each : request.adapters) all += (all.empty() ? "" : "+") + each.name;
  return all;
}

std::vector<std::string> base_names(const app::ServeOptions& options, const ModelInfo& model) {
  std::vector<std::string> names = options.served_names;
  const std::string file = std::filesystem::path(model.path).filename().string();
  for (const std::string& name : {model.name, file, model.path, std::string(app::kBaseName)}) {
    if (!name.empty() && std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return names;
}

std::string joined(const std::map<std::string, int64_t>& rows) {
  std::string names;
  for (const auto& [name, count] : rows) {
    if (!name.empty() && count > 0) names += (names.empty() ? "" : ",") + name;
  }
  return names;
}

void change(std::map<std::string, int64_t>& rows, const std::string& name, int64_t by) {
  const auto place = rows.try_emplace(name, 0).first;
  place->second += by;
  if (place->second == 0) rows.erase(place);
}

}  // namespace

Service::Service(boost::asio::io_context& network, const app::ServeOptions& options, Engine engine,
                 std::function<void()> on_end)
    : network_(network), options_(options) {
  last_.load = engine.load();
  auto tell_end = [this, on_end = std::move(on_end)](const std::string& ended_by) {
    retry_for_memory([&] {
      boost::asio::post(network_, [this, on_end, ended_by] {
        ended_by_ = ended_by;
        on_end();
      });
    });
  };
  engine_ = std::make_unique<EngineThread>(std::move(engine), std::move(tell_end));
  names_ = std::make_unique<ModelNames>(base_names(options, engine_->model()),
                                        options.model.engine.adapter_dir, engine_->model().path);
  for (const app::NamedAdapter& adapter : options.model.adapters) {
    names_->add(adapter.name, {.path = adapter.folder, .is_added = true});
  }
  metrics_ = std::make_unique<Metrics>(engine_->options(), last_.load.num_pages, names_->base());
}

Service::~Service() {
  texts_.join();
  loads_.join();
  engine_->stop();
}

std::unique_ptr<Service::Rows> Service::submit(const Generation& generation) {
  if (const std::string reason = refusal(); !reason.empty()) throw unavailable(reason);
  const auto count = std::ssize(generation.prompts) * generation.best_of;
  const int64_t room = engine_->options().max_batch + options_.max_waiting - num_rows();
  if (count > room) throw overloaded();
  auto rows = std::make_unique<Rows>(*this);
  rows->news = std::make_shared<RowNews>(
      network(), static_cast<size_t>(options_.stream_buffer),
      [this](RequestId id, bool is_paused) { engine_->set_paused(id, is_paused); });
  rows->rows.reserve(static_cast<size_t>(count));
  for (const Request& request : generation.prompts) {
    // Counted before the engine knows them: whatever fails from here on, Rows ends them.
    const size_t first = rows->rows.size();
    for (int64_t i = 0; i < generation.best_of; ++i) {
      Rows::Row row{.adapter = adapter_of(request)};
      change(waiting_, row.adapter, 1);
      ++num_waiting_;
      rows->rows.push_back(std::move(row));
    }
    std::vector<RequestId> ids;
    if (generation.best_of == 1) {
      ids.push_back(engine_->submit(request, rows->news));
    } else {
      ids = engine_->submit_each(request, sample_variants(generation.best_of), rows->news);
    }
    for (size_t i = 0; i < ids.size(); ++i) rows->rows[first + i].id = ids[i];
  }
  return rows;
}

std::string Service::refusal() const {
  if (!ended_by_.empty()) return ended_by_;
  return is_draining_ ? "the server is about to end" : "";
}

Service::Rows::~Rows() {
  for (Row& row : rows) {
    if (row.has_ended) continue;
    service_.engine_->cancel(row.id);
    end(row);
  }
}

void Service::Rows::begin(Row& row) {
  if (row.has_begun) return;
  change(service_.running_, row.adapter, 1);  // before the rest, as memory may lack
  change(service_.waiting_, row.adapter, -1);
  row.has_begun = true;
  --service_.num_waiting_;
  ++service_.num_running_;
}

void Service::Rows::end(Row& row) {
  if (std::exchange(row.has_ended, true)) return;
  if (row.has_begun) {
    --service_.num_running_;
    change(service_.running_, row.adapter, -1);
  } else {
    --service_.num_waiting_;
    change(service_.waiting_, row.adapter, -1);
  }
}

Metrics::Now Service::now() const {
  Metrics::Now now = last_;
  now.num_running = num_running_;
  now.num_waiting = num_waiting_;
  now.running_adapters = joined(running_);
  now.waiting_adapters = joined(waiting_);
  return now;
}

int64_t Service::rows_of(const std::string& adapter) const {
  const auto count = [&adapter](const std::map<std::string, int64_t>& rows) {
    const auto place = rows.find(adapter);
    return place == rows.end() ? 0 : place->second;
  };
  return count(waiting_) + count(running_);
}

void Service::refresh() {
  if (is_refreshing_.exchange(true)) return;
  try {
    engine_->post([this](Engine& engine) {
      try {
        boost::asio::post(network_, [this, load = engine.load(), stats = engine.stats(),
                                     adapters = engine.adapter_states()]() mutable {
          last_.load = load;
          last_.stats = stats;
          last_.adapters = std::move(adapters);
          is_refreshing_ = false;
        });
      } catch (const std::bad_alloc&) {  // what is known stays, and is asked for again
        is_refreshing_ = false;
      }
    });
  } catch (...) {
    is_refreshing_ = false;
    throw;
  }
}

/// The wait for a call in another thread, which may refer to variables of the coroutine that waits.
/// Asio drops a coroutine where it finds no memory for its next wait: then the other thread is
/// waited for here, before those variables end.
struct Service::Waiting {
  explicit Waiting(boost::asio::io_context& network)
      : timer(network, boost::asio::steady_timer::time_point::max()) {}

  struct Guard {
    std::shared_ptr<Waiting> waiting{};
    ~Guard() {
      if (waiting) waiting->has_ended.wait(false);
    }
  };

  boost::asio::steady_timer timer;
  std::atomic<bool> has_ended = false;
  bool is_told = false;  // of the thread of the network
};

boost::asio::awaitable<void> Service::run(Task task) {
  const auto waiting = std::make_shared<Waiting>(network_);
  Done done = [this, waiting] {
    waiting->has_ended = true;
    waiting->has_ended.notify_all();
    retry_for_memory([&] {
      boost::asio::post(network_, [waiting] {
        waiting->is_told = true;
        waiting->timer.cancel();
      });
    });
  };
  task(std::move(done));
  const Waiting::Guard guard{waiting};
  boost::system::error_code cancelled;
  while (!waiting->is_told) {
    co_await waiting->timer.async_wait(
        boost::asio::redirect_error(boost::asio::use_awaitable, cancelled));
  }
}

}  // namespace heddle::serve
