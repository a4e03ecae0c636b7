--- Asks the server to edit a range or to fill its holes, shows how far it is, and hands the answer to the preview.
local given = require("midspan.given")
local preview = require("midspan.preview")

local M = {}

local namespace = vim.api.nvim_create_namespace("midspan.progress")

---@class midspan.Range in bytes, 0-based, the end not in it
---@field row integer
---@field col integer
---@field end_row integer
---@field end_col integer

---@class midspan.Running
---@field client vim.lsp.Client
---@field id? integer of the request
---@field token string
---@field mark integer extmark that says how far it is
---@field what string

---@type table<integer, midspan.Running> by buffer
local running = {}
local n_asked = 0

---@param message string
---@param level? integer
local function say(message, level)
  vim.notify("Midspan: " .. message, level)
end

--- Gives the server of a buffer; says what to do when there is none that can do it.
---@param bufnr integer
---@return vim.lsp.Client?
function M.client_of(bufnr)
  local client = vim.lsp.get_clients({ bufnr = bufnr, name = "midspan" })[1]
  if not client then
    say(require("midspan.status").absence(bufnr), vim.log.levels.ERROR)
  end
  return client
end

---@param bufnr integer
---@param range midspan.Range
---@param encoding string
---@return lsp.Range
local function lsp_range(bufnr, range, encoding)
  local function position(row, col)
    local line = vim.api.nvim_buf_get_lines(bufnr, row, row + 1, false)[1] or ""
    return { line = row, character = vim.str_utfindex(line, encoding, math.min(col, #line), false) }
  end
  return { start = position(range.row, range.col), ["end"] = position(range.end_row, range.end_col) }
end

---@param bufnr integer
---@param text string
local function show_progress(bufnr, text)
  local job = running[bufnr]
  local at = vim.api.nvim_buf_get_extmark_by_id(bufnr, namespace, job.mark, {})
  vim.api.nvim_buf_set_extmark(bufnr, namespace, at[1], at[2], {
    id = job.mark,
    virt_text = { { text, "Comment" } },
    virt_text_pos = "eol",
  })
end

---@param bufnr integer
local function finish(bufnr)
  running[bufnr] = nil
  if vim.api.nvim_buf_is_valid(bufnr) then
    vim.api.nvim_buf_clear_namespace(bufnr, namespace, 0, -1)
  end
end

---@param bufnr integer
---@param job midspan.Running
---@return lsp.Handler
local function answer_for(bufnr, job)
  return function(err, result)
    if running[bufnr] ~= job then
      return -- cancelled, or asked anew
    end
    finish(bufnr)
    if not vim.api.nvim_buf_is_loaded(bufnr) then
      return
    end
    if err then
      say(("%s failed: %s"):format(job.what, err.message), vim.log.levels.ERROR)
    elseif type(result) ~= "table" or #(result.edits or {}) == 0 then
      local reason = type(result) == "table" and (given(result.silence) or given(result.message))
      say(reason or "the server has nothing to change here")
    elseif result.textDocument.version ~= vim.lsp.util.buf_versions[bufnr] then
      say("the text changed meanwhile; ask again", vim.log.levels.WARN)
    else
      preview.show(bufnr, result.edits, job.client.offset_encoding)
      local n = #result.edits
      -- Nothing but the number of holes: a message of two lines asks for Enter.
      local holes = (given(result.message) or ""):match("%d+ of %d+ holes?")
      say(("%s; :Midspan accept | reject"):format(holes or n == 1 and "1 hunk" or n .. " hunks"))
    end
  end
end

--- Sends `midspan/edit` or `midspan/holes`; the newest request of a buffer wins.
---@param client vim.lsp.Client
---@param bufnr integer
---@param method string
---@param params table what the method takes besides the token; the buffer as it is now where it names no document
---@param row integer line beside which progress is shown
local function ask(client, bufnr, method, params, row)
  M.cancel(bufnr)
  n_asked = n_asked + 1
  local job = { client = client, token = "midspan-" .. n_asked, what = method == "midspan/edit" and "edit" or "holes" }
  job.mark = vim.api.nvim_buf_set_extmark(bufnr, namespace, row, 0, {})
  running[bufnr] = job
  local now = { uri = vim.uri_from_bufnr(bufnr), version = vim.lsp.util.buf_versions[bufnr] }
  params.textDocument = params.textDocument or now
  params.workDoneToken = job.token
  show_progress(bufnr, "Midspan: asked …")
  local is_sent, id = client:request(method, params, answer_for(bufnr, job), bufnr)
  job.id = id
  if not is_sent then
    finish(bufnr)
    say("the server has stopped; :Midspan restart starts it again", vim.log.levels.ERROR)
  end
end

--- Shows a `$/progress` of a running request. The plugin calls it.
---@param client_id integer
---@param progress lsp.ProgressParams
function M.progress(client_id, progress)
  for bufnr, job in pairs(running) do
    if job.client.id == client_id and job.token == progress.token and progress.value.kind ~= "end" then
      local value = progress.value
      local percentage = given(value.percentage) and (" %d %%"):format(value.percentage) or ""
      show_progress(bufnr, ("Midspan:%s %s"):format(percentage, given(value.message) or ""))
    end
  end
end

--- Withdraws the running request of a buffer.
---@param bufnr integer
---@return boolean cancelled false when none is running
function M.cancel(bufnr)
  local job = running[bufnr]
  if not job then
    return false
  end
  finish(bufnr)
  if job.id then
    job.client:cancel_request(job.id)
  end
  return true
end

--- Asks for an edit of a range.
---@param client vim.lsp.Client
---@param bufnr integer
---@param range midspan.Range
---@param how { preset?: string, instruction?: string }
function M.edit(client, bufnr, range, how)
  local params = { range = lsp_range(bufnr, range, client.offset_encoding) }
  ask(client, bufnr, "midspan/edit", vim.tbl_extend("error", params, how), range.row)
end

--- Previews what the server's command of a code action would do unseen.
---@param method "midspan/edit"|"midspan/holes"
---@param command lsp.Command
---@param ctx { bufnr: integer, client_id: integer }
function M.command(method, command, ctx)
  local params = command.arguments[1]
  ask(assert(vim.lsp.get_client_by_id(ctx.client_id)), ctx.bufnr, method, params, params.range.start.line)
end

--- Asks for the holes of a range, or of the whole buffer, to be filled together.
---@param bufnr integer
---@param range? midspan.Range
function M.holes(bufnr, range)
  local client = M.client_of(bufnr)
  if client then
    local params = { range = range and lsp_range(bufnr, range, client.offset_encoding) }
    ask(client, bufnr, "midspan/holes", params, range and range.row or vim.api.nvim_win_get_cursor(0)[1] - 1)
  end
end

return M
