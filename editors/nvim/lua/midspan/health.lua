--- `:checkhealth midspan`: what works, what does not, and how to mend it.
local M = {}

local health = vim.health
local VERSION_TIMEOUT_MS = 10000
local STATUS_TIMEOUT_MS = 3000
local FILL_HINT = "Try `midspan fill FILE --at LINE:COL` in a terminal: it fails the same way and says more."
local RESTART_HINT = "Run :Midspan restart, then look at :lua vim.cmd.edit(vim.lsp.log.get_filename())."

local function check_neovim()
  health.start("Neovim")
  local version = tostring(vim.version())
  if vim.fn.has("nvim-0.12") == 1 then
    health.ok(("Neovim %s draws inline completions itself"):format(version))
  elseif vim.fn.has("nvim-0.11") == 1 then
    health.warn(("Neovim %s has no inline completion (ghost text)"):format(version), {
      "Install Neovim 0.12 or newer for ghost text.",
      "Until then suggestions appear in the completion menu; see :help midspan-completion.",
    })
  else
    health.error(("Neovim %s cannot start the server by itself"):format(version), {
      "Install Neovim 0.12 or newer.",
      'Older ones can call vim.lsp.start({ name = "midspan", cmd = { "midspan", "lsp" } }) and use its completions.',
    })
  end
end

---@return string[] command that starts the language server
local function server_command()
  local config = vim.lsp.config and vim.lsp.config.midspan
  local command = config and config.cmd
  return type(command) == "table" and command or { "midspan", "lsp" }
end

local function check_executable()
  health.start("Executable")
  local program = server_command()[1]
  local path = vim.fn.exepath(program)
  if path == "" then
    health.error(("%s is not an executable that Neovim can find"):format(program), {
      "Install it: `make setup` in a checkout of Midspan puts it into .venv/bin.",
      "In a virtual environment: start Neovim with it activated, or name the program:",
      'vim.lsp.config("midspan", { cmd = { "/path/to/venv/bin/midspan", "lsp" } })',
    })
    return
  end
  local ok, process = pcall(vim.system, { path, "--version" }, { text = true, timeout = VERSION_TIMEOUT_MS })
  local result = ok and process:wait() or { code = -1, stdout = "", stderr = tostring(process) }
  if result.code == 0 then
    health.ok(("%s (%s)"):format(vim.trim(result.stdout), path))
  else
    health.error(("%s --version failed with status %d: %s"):format(path, result.code, vim.trim(result.stderr or "")), {
      "Run it in a terminal to see what is wrong; installing midspan again mends a broken environment.",
    })
  end
end

---@param value any as decoded from JSON, where null is vim.NIL
---@return any value nil for null
local function given(value)
  return value ~= vim.NIL and value or nil
end

---@param client vim.lsp.Client
local function check_engine(client)
  local report = require("midspan.status")
  local status, problem = report.ask(client, STATUS_TIMEOUT_MS)
  if not status then
    local last = report.describe(client)
    health.warn(("the engine's status is unknown: %s (last report: %s)"):format(problem, last), { RESTART_HINT })
    return
  end
  local engine = given(status.engine)
  local failure = given(status.engine_error) or (engine and given(engine.error))
  if failure then
    health.error("engine: " .. failure, { FILL_HINT })
  elseif engine then
    health.ok(("engine %s: %s on %s, process %d"):format(engine.state, engine.checkpoint, engine.device, engine.pid))
  else
    health.info("no engine is running; it starts with the first suggestion")
  end
  local is_same = failure and failure == status.reason
  local line = "last answer: " .. (is_same and status.state or report.line(status))
  if status.state == "failed" then
    health.error(line, not failure and { FILL_HINT } or nil)
  elseif status.state == "off" then
    health.warn(line, { "The server's settings say so; see :help midspan-options." })
  else
    health.info(line)
  end
end

---@param client vim.lsp.Client
local function check_client(client)
  local buffers = vim.tbl_keys(client.attached_buffers)
  local root = client.root_dir or "none (single file)"
  health.ok(("language server attached to %d buffer(s), root %s"):format(#buffers, root))
  if not vim.lsp.inline_completion then
    return
  end
  if not client:supports_method("textDocument/inlineCompletion") then
    health.error("this server offers no inline completion", { "Install a newer midspan, then run :Midspan restart." })
    return
  end
  local is_shown = vim.iter(buffers):any(function(bufnr)
    return vim.lsp.inline_completion.is_enabled({ bufnr = bufnr, client_id = client.id })
  end)
  if is_shown then
    health.ok("inline completion is on in its buffers")
  else
    health.warn("inline completion is off in all its buffers", {
      "Something called vim.lsp.inline_completion.enable(false); call it with true to see suggestions.",
    })
  end
end

local function check_server()
  health.start("Language server")
  local clients = vim.lsp.get_clients({ name = "midspan" })
  if #clients == 0 then
    local is_enabled = vim.lsp.is_enabled and vim.lsp.is_enabled("midspan")
    health.warn("no language server is attached", {
      is_enabled and ("Open a file of type: " .. table.concat((vim.lsp.config.midspan or {}).filetypes or {}, ", "))
        or 'Put vim.lsp.enable("midspan") into your init.lua.',
      "If a file is open and the server still does not start: " .. RESTART_HINT,
    })
  end
  for _, client in ipairs(clients) do
    check_client(client)
    check_engine(client)
  end
  if not require("midspan.guard").is_enabled() then
    health.warn("suggestions are switched off", { "Run :Midspan toggle, or unset vim.g.midspan_enabled." })
  end
end

local function check_keys()
  health.start("Keys")
  if vim.fn.hasmapto("<Plug>(midspan-accept)", "i") == 1 then
    health.ok("a key accepts suggestions")
  else
    health.info("no key is mapped to <Plug>(midspan-accept); see :help midspan-keys (Lua maps are not seen here)")
  end
end

--- Runs all checks.
function M.check()
  check_neovim()
  check_executable()
  check_server()
  check_keys()
end

return M
