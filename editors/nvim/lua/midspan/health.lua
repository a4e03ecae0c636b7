--- `:checkhealth midspan`: what works, what does not, and how to mend it.
local given = require("midspan.given")

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
    health.ok(("Neovim %s has no inline completion; Midspan draws the ghost text"):format(version))
  else
    health.error(("Neovim %s is too old"):format(version), {
      "Install Neovim 0.11 or newer.",
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

---@return string? version of the program that would be started now
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
    return nil
  end
  local ok, process = pcall(vim.system, { path, "--version" }, { text = true, timeout = VERSION_TIMEOUT_MS })
  local result = ok and process:wait() or { code = -1, stdout = "", stderr = tostring(process) }
  if result.code == 0 then
    health.ok(("%s (%s)"):format(vim.trim(result.stdout), path))
    return result.stdout:match("%d+%.%d+%S*")
  else
    health.error(("%s --version failed with status %d: %s"):format(path, result.code, vim.trim(result.stderr or "")), {
      "Run it in a terminal to see what is wrong; installing midspan again mends a broken environment.",
    })
  end
end

---@param client vim.lsp.Client
---@param installed? string
local function check_version(client, installed)
  local running = vim.tbl_get(client, "server_info", "version")
  if installed and running and running ~= installed then
    health.warn(("the running server is version %s, the installed program %s"):format(running, installed), {
      "Run :Midspan restart to use the installed one.",
    })
  end
end

---@param client vim.lsp.Client
---@return midspan.FullStatus?
local function check_engine(client)
  local report = require("midspan.status")
  local status, problem = report.ask(client, STATUS_TIMEOUT_MS)
  if not status then
    local last = report.describe(client)
    health.warn(("the engine's status is unknown: %s (last report: %s)"):format(problem, last), { RESTART_HINT })
    return nil
  end
  local engine = given(status.engine)
  local failure = given(status.engine_error) or (engine and given(engine.error))
  if failure then
    health.error("engine: " .. failure, { FILL_HINT })
  elseif engine then
    health.ok(("engine %s: %s on %s, process %d"):format(engine.state, engine.checkpoint, engine.device, engine.pid))
    local version = vim.tbl_get(client, "server_info", "version")
    if version and engine.version and engine.version ~= version then
      health.warn(("the engine is version %s, the server %s"):format(engine.version, version), {
        "Run `midspan engine stop` in a terminal; the next suggestion starts the engine of the installed version.",
      })
    end
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
  return status
end

---@param bufnr integer
---@return string
local function name_of(bufnr)
  local name = vim.api.nvim_buf_get_name(bufnr)
  return name == "" and "[No Name]" or vim.fn.fnamemodify(name, ":~:.")
end

---@param client vim.lsp.Client
---@param status? midspan.FullStatus
local function check_client(client, status)
  local buffers = vim.tbl_keys(client.attached_buffers)
  local root = client.root_dir or "none (single file)"
  health.ok(("language server attached to %d buffer(s), root %s"):format(#buffers, root))
  for _, bufnr in ipairs(buffers) do
    local reason = status and (status.left_alone or {})[vim.uri_from_bufnr(bufnr)]
    if reason then
      health.warn(("%s: %s"):format(name_of(bufnr), reason), { "See :help midspan-settings for what to change." })
    elseif not require("midspan.switch").is_on(bufnr) then
      health.warn(("%s: suggestions are switched off"):format(name_of(bufnr)), {
        "Run :Midspan toggle or, in the buffer, :Midspan toggle buffer.",
      })
    end
  end
  if require("midspan.guard").is_popup(client) then
    health.ok("suggestions appear in the completion menu (the setting popup); see :help midspan-completion")
    return
  end
  if not client:supports_method("textDocument/inlineCompletion") then
    health.error("this server offers no inline completion", { "Install a newer midspan, then run :Midspan restart." })
    return
  end
  local is_shown = vim.iter(buffers):any(function(bufnr)
    return require("midspan.ghost").is_enabled({ bufnr = bufnr, client_id = client.id })
  end)
  if is_shown then
    health.ok("inline completion is on in its buffers")
  else
    health.warn("inline completion is off in all its buffers", {
      "Something called vim.lsp.inline_completion.enable(false); call it with true to see suggestions.",
    })
  end
end

---@param client vim.lsp.Client
local function check_edits(client)
  local response = client:request_sync("midspan/editPresets", vim.empty_dict(), STATUS_TIMEOUT_MS)
  local presets = response and response.result
  if not presets then
    health.warn("this server cannot edit", { "Install a newer midspan, then run :Midspan restart." })
    return
  end
  local names = vim.tbl_map(function(preset)
    return preset.id
  end, presets.presets)
  local instructions = presets.instructions and "and follows instructions" or "and follows no instructions"
  health.ok(("the checkpoint edits by %s %s"):format(table.concat(names, ", "), instructions))
end

--- Says of each open file that no server is attached to why that is so.
local function check_languages()
  local filetypes = vim.lsp.config and (vim.lsp.config.midspan or {}).filetypes or {}
  for _, bufnr in ipairs(vim.api.nvim_list_bufs()) do
    local filetype = vim.bo[bufnr].filetype
    local is_file = vim.api.nvim_buf_is_loaded(bufnr) and vim.bo[bufnr].buflisted and vim.bo[bufnr].buftype == ""
    if is_file and filetype ~= "" and not vim.list_contains(filetypes, filetype) then
      health.info(("%s: the language %s is not one of those asked for (%s)"):format(
        name_of(bufnr),
        filetype,
        table.concat(filetypes, ", ")
      ))
      local call = ('vim.lsp.config("midspan", { filetypes = { "%s" } })'):format(filetype)
      health.info("With a checkpoint that knows it: " .. call)
    end
  end
end

---@param installed? string
local function check_server(installed)
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
    check_version(client, installed)
    check_client(client, check_engine(client))
    check_edits(client)
  end
  check_languages()
  if not require("midspan.switch").is_on() then
    health.warn("suggestions are switched off", { "Run :Midspan toggle, or unset vim.g.midspan_enabled." })
  end
end

-- By a command that says that they run, and what switches their ghost text off.
local RIVALS = {
  Copilot = "copilot.vim: vim.g.copilot_enabled = false; copilot.lua: suggestion = { enabled = false } in its setup()",
  Codeium = "vim.g.codeium_enabled = false",
  SupermavenToggle = "disable_inline_completion = true in its setup()",
  LlamaToggle = "vim.g.llama_config = { auto_fim = false }",
  TabnineToggle = ":TabnineDisable",
}

local function check_rivals()
  health.start("Other plugins")
  local n_found = 0
  local function warn(name, mend)
    n_found = n_found + 1
    health.warn(("%s draws ghost text too; both at once cover each other"):format(name), {
      "Switch it off where Midspan is used: " .. mend,
    })
  end
  for command, mend in vim.spairs(RIVALS) do
    if vim.fn.exists(":" .. command) == 2 then
      warn(("the plugin with the command :%s"):format(command), mend)
    end
  end
  for _, midspan in ipairs(vim.lsp.get_clients({ name = "midspan" })) do
    for bufnr in pairs(midspan.attached_buffers) do
      for _, other in ipairs(vim.lsp.get_clients({ bufnr = bufnr })) do
        if other.name ~= "midspan" and vim.tbl_get(other, "server_capabilities", "inlineCompletionProvider") then
          local off = ("vim.lsp.inline_completion.enable(false, { client_id = %d })"):format(other.id)
          warn(("the language server %s"):format(other.name), off)
        end
      end
    end
  end
  if n_found == 0 then
    health.ok("no other plugin that draws ghost text was found")
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
  check_server(check_executable())
  check_rivals()
  check_keys()
end

return M
